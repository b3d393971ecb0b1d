package runs

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// progress is the progress of an apply, read from the lines of an engine's log. Lines of other programs may look like
// them: it is shown, and nothing is decided by it.
type progress struct {
	step    string               // that printed the lines
	planned int                  // changes; 0: not known
	done    int                  // of them
	now     map[string]time.Time // addresses of the resources that are being changed, and since when
}

// maxNow bounds the addresses that are remembered.
const maxNow = 10_000

// The lines of terraform and tofu, as in
//
//	Plan: 3 to add, 1 to change, 0 to destroy.
//	aws_vpc.main: Creating...
//	aws_vpc.main: Still creating... [10s elapsed]
//	aws_vpc.main: Creation complete after 12s [id=vpc-1]
var (
	planLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^Plan: (?:\d+ to import, )?(\d+) to add, (\d+) to change, (\d+) to destroy`)
	})
	changeLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(\S.{0,300}?): (?:(?:Still )?(?:[Cc]reating|[Mm]odifying|[Dd]estroying)\.\.\.|((?:Creation|Modifications|Destruction) complete after))`)
	})
)

// read notes the progress that a line reports.
func (p *progress) read(l api.LogLine) {
	if !strings.Contains(l.Text, ": ") {
		return
	}
	said := term.Clean(l.Text)
	if plan := planLine().FindStringSubmatch(said); plan != nil {
		*p = progress{}
		for _, n := range plan[1:] {
			count, _ := strconv.Atoi(n) // too large a number is the largest
			p.planned += count
		}
		return
	}
	change := changeLine().FindStringSubmatch(said)
	if change == nil {
		return
	}
	p.step = l.Step
	switch _, known := p.now[change[1]]; {
	case change[2] != "":
		delete(p.now, change[1])
		p.done++
	case !known && len(p.now) < maxNow:
		if p.now == nil {
			p.now = map[string]time.Time{}
		}
		p.now[change[1]] = l.At
	}
}

// text describes the changes of a step: how many are done, and which has taken longest so far.
func (p *progress) text(step string, now time.Time) string {
	if p.step != step {
		return ""
	}
	said := ""
	switch {
	case p.planned > 0:
		said = fmt.Sprintf(", %d of %d done", p.done, max(p.done, p.planned))
	case p.done > 0:
		said = fmt.Sprintf(", %d done", p.done)
	}
	if len(p.now) == 0 {
		return said
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(p.now)), func(x, y string) int {
		return cmp.Or(p.now[x].Compare(p.now[y]), strings.Compare(x, y))
	})
	said += ", " + oldest + " " + text.Duration(max(0, now.Sub(p.now[oldest])))
	if more := len(p.now) - 1; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}
