package runs

import (
	"slices"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
)

// logView is the part of a log that is shown.
type logView struct {
	steps      []string // only their lines; none: all
	timestamps bool
	attempt    int   // 0: the latest
	from       int64 // number of the first line
	none       bool  // neither lines nor steps are shown
}

func (v logView) shows(l api.LogLine) bool {
	return !v.none && (len(v.steps) == 0 || slices.Contains(v.steps, l.Step))
}

// logs prints the log of one attempt so far, and returns the number of lines.
func logs(a *cli.App, cl *client.Client, id string, attempt int, v logView) (lines int, err error) {
	live := term.NewLive(a.Stdout, a.Style())
	f := &follower{live: live, view: v}
	for offset := v.from; ; {
		page, err := cl.Logs(a.Ctx, id, attempt, offset, logPage, 0)
		if err != nil {
			return lines, err
		}
		for _, l := range page.Lines {
			if !v.shows(l) {
				continue
			}
			if lines++; a.JSON() {
				if err := cli.WriteLine(a.Stdout, l); err != nil {
					return lines, err
				}
			}
		}
		if !a.JSON() {
			f.showLines(page)
		}
		if len(page.Lines) == 0 || live.Err() != nil {
			return lines, live.Err()
		}
		attempt, offset = page.Attempt, page.Next
	}
}

// tailOf returns the number of the line with which the last n lines that are shown begin. For lines of some steps it
// reads backwards from the end, and no more than it needs.
func tailOf(a *cli.App, cl *client.Client, id string, attempt, n int, v logView) (of int, from int64, err error) {
	page, err := cl.Logs(a.Ctx, id, attempt, -1, 1, 0)
	attempt, from = page.Attempt, page.Next
	if len(v.steps) == 0 {
		return attempt, max(0, from-int64(n)), err
	}
	for err == nil && from > 0 && n > 0 {
		until := from
		from = max(0, from-logPage)
		var numbers []int64 // of the lines that are shown
		for at := from; at < until && err == nil; at = page.Next {
			page, err = cl.Logs(a.Ctx, id, attempt, at, int(until-at), 0)
			for i, l := range page.Lines {
				if v.shows(l) {
					numbers = append(numbers, page.Next-int64(len(page.Lines)-i))
				}
			}
			if len(page.Lines) == 0 {
				break
			}
		}
		if len(numbers) >= n {
			return attempt, numbers[len(numbers)-n], err
		}
		n -= len(numbers)
	}
	return attempt, from, err
}
