package schedules

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/adhocore/gronx"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// times are the times of a cron expression in a time zone.
//
// A time that does not exist, because the clocks were put forward over it, is the moment at which they were. A time
// that exists twice, because they were put back, is the first of the two. With every hour (hour field *) there is
// nothing to make up for or to leave out: such times follow the hours that there are.
type times struct {
	expr    string
	loc     *time.Location
	hourly  bool
	counted map[[2]int64]int // the results of between
}

// shorthands are the names that a schedule may have in place of five fields.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
}

// cronPart is one of the parts of a field, which commas separate: gronx takes more than that.
var cronPart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\*|([0-9]{1,2}|[A-Za-z]{3})(-([0-9]{1,2}|[A-Za-z]{3}))?)(/[0-9]{1,2})?$`)
})

// maxSteps are the largest steps of the five fields.
var maxSteps = [5]int{59, 23, 31, 12, 7}

// timesOf reads a cron expression and the name of a time zone.
func timesOf(cron, zone string) (times, error) {
	expr := strings.Join(strings.Fields(cron), " ")
	if long, ok := shorthands[expr]; ok {
		expr = long
	}
	fields := strings.Fields(expr)
	if len(fields) != 5 {
		return times{}, workflow.Invalid("cron", "a schedule has five fields (minute, hour, day of month, month, day of week), or @hourly, @daily, @weekly or @monthly")
	}
	for i, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			if !cronPart().MatchString(part) {
				return times{}, workflow.Invalid("cron", "a field has *, numbers, ranges such as 1-5, steps such as */15, lists of them, and names such as MON and JAN; %q is not one of them", part)
			}
			if _, step, ok := strings.Cut(part, "/"); ok {
				if n, _ := strconv.Atoi(step); n < 1 || n > maxSteps[i] {
					return times{}, workflow.Invalid("cron", "the step of %q lies between 1 and %d in its field: a larger one would be due once, and not every %d", part, maxSteps[i], n)
				}
			}
		}
	}
	if err := checkFields(expr); err != nil {
		return times{}, err
	}
	if strings.EqualFold(zone, "local") {
		return times{}, workflow.Invalid("time_zone", "a time zone has its IANA name, such as Europe/Berlin")
	}
	loc, err := time.LoadLocation(zone) // "" is UTC
	if err != nil {
		return times{}, workflow.Invalid("time_zone", "there is no time zone %q: use its IANA name, such as Europe/Berlin", zone)
	}
	return times{expr: expr, loc: loc, hourly: fields[1] == "*", counted: map[[2]int64]int{}}, nil
}

// checkFields refuses numbers that a field cannot have. Each part is checked by itself: gronx stops at the first part
// of a list that is due.
func checkFields(expr string) error {
	fields, err := gronx.Segments(expr) // with the seconds before them
	for pos, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			check := &gronx.SegmentChecker{}
			if _, one := check.CheckDue(part, pos); one != nil && err == nil {
				err = one
			}
		}
	}
	if err != nil {
		return workflow.Invalid("cron", "%q is not a cron expression: %v", expr, err)
	}
	return nil
}

// maxPeriods bounds the periods of a time zone that are looked at for one time: there are some in a year, and a 29
// February is a Sunday every 28 years.
const maxPeriods = 300

// asWall is the time that clocks show at a moment, written as if it were UTC: gronx goes through days of 24 hours
// only.
func asWall(at time.Time, offset int) time.Time {
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

func fromWall(wall time.Time, offset int) time.Time {
	return wall.Add(-time.Duration(offset) * time.Second)
}

// offset is how far the clocks of the time zone are ahead of UTC at a time, in seconds.
func (t times) offset(at time.Time) int {
	_, offset := at.In(t.loc).Zone()
	return offset
}

// last is the latest time that is not after a moment; zero if there is none.
func (t times) last(at time.Time) time.Time {
	for range maxPeriods {
		start, _ := at.In(t.loc).ZoneBounds()
		offset := t.offset(at)
		wall, err := gronx.PrevTickBefore(t.expr, asWall(at, offset).Truncate(time.Minute), true)
		switch {
		case err != nil:
			return time.Time{}
		case start.IsZero():
			return fromWall(wall, offset)
		}
		before := start.Add(-time.Second)
		first := offset // of the first time on the clocks of this period; without every hour, of the first that no earlier period has shown
		if !t.hourly {
			first = t.offset(before)
		}
		if !wall.Before(asWall(start, first)) {
			return rules.Latest(fromWall(wall, offset), start.UTC())
		}
		at = before
	}
	return time.Time{}
}

// next is the first time after a moment; zero if there is none.
func (t times) next(after time.Time) time.Time {
	start, end := after.In(t.loc).ZoneBounds()
	offset := t.offset(after)
	wall := asWall(after, offset).Truncate(time.Minute)
	if !t.hourly && !start.IsZero() {
		wall = rules.Latest(wall, asWall(start, t.offset(start.Add(-time.Second))).Add(-time.Minute)) // a time that exists twice is over
	}
	for range maxPeriods {
		tick, err := gronx.NextTickAfter(t.expr, wall, false)
		if err != nil {
			return time.Time{}
		}
		if at := rules.Latest(fromWall(tick, offset), start.UTC()); end.IsZero() || at.Before(end) {
			return at
		}
		start, offset = end, t.offset(end)
		if _, end = start.In(t.loc).ZoneBounds(); t.hourly {
			wall = asWall(start, offset).Add(-time.Minute)
		}
	}
	return time.Time{}
}

// between counts the times between two moments, without both, up to api.MaxMissed.
func (t times) between(from, to time.Time) (n int) {
	key := [2]int64{from.UnixNano(), to.UnixNano()}
	if n, ok := t.counted[key]; ok {
		return n
	}
	for at := t.next(from); n < api.MaxMissed && !at.IsZero() && at.Before(to); at = t.next(at) {
		n++
	}
	t.counted[key] = n
	return n
}

// Bounds of apart: it looks at more times than a day has minutes, and over more than the 8 years until a 29 February
// comes again.
const (
	maxApart  = 1500
	longApart = 9 * 366 * 24 * time.Hour
)

// apart is the shortest distance between two of the times that come after a moment; zero if none comes.
func (t times) apart(after time.Time) time.Duration {
	clocks := times{expr: t.expr, loc: time.UTC, hourly: t.hourly}
	at := clocks.next(after)
	if at.IsZero() {
		return 0
	}
	shortest := longApart
	for until, n := at.Add(longApart), 0; n < maxApart && shortest > time.Minute && at.Before(until); n++ {
		next := clocks.next(at)
		if next.IsZero() {
			break
		}
		shortest, at = min(shortest, next.Sub(at)), next
	}
	return shortest
}
