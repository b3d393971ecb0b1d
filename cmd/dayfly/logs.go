package main

import (
	"slices"

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
}

func (v logView) shows(l api.LogLine) bool {
	return len(v.steps) == 0 || slices.Contains(v.steps, l.Step)
}

// logs prints the log of one attempt so far, and returns the number of lines.
func (a *app) logs(cl *client.Client, id string, attempt int, v logView) (lines int, err error) {
	style := a.style()
	live := term.NewLive(a.stdout, style)
	f := &follower{live: live, view: v}
	for offset := v.from; ; {
		page, err := cl.Logs(a.ctx, id, attempt, offset, logPage, 0)
		if err != nil {
			return lines, err
		}
		for _, l := range page.Lines {
			if !v.shows(l) {
				continue
			}
			lines++
			if !a.json() {
				continue
			}
			if err := a.print("%s", compact(l)); err != nil {
				return lines, err
			}
		}
		if !a.json() {
			f.showLines(page)
		}
		if len(page.Lines) == 0 || live.Err() != nil {
			return lines, live.Err()
		}
		attempt, offset = page.Attempt, page.Next
	}
}

// tailOf returns the number of the line with which the last n lines that are shown begin. It reads backwards from the
// end, and no more than it needs.
func (a *app) tailOf(cl *client.Client, id string, attempt, n int, v logView) (of int, from int64, err error) {
	attempt, end, err := a.endOf(cl, id, attempt)
	for from = end; err == nil && from > 0 && n > 0; {
		until := from
		from = max(0, from-logPage)
		if len(v.steps) == 0 {
			from = max(from, until-int64(n))
		}
		var page api.LogPage
		var numbers []int64 // of the lines that are shown
		for at := from; at < until && err == nil; at = page.Next {
			page, err = cl.Logs(a.ctx, id, attempt, at, int(until-at), 0)
			for i, l := range page.Lines {
				if number := page.Next - int64(len(page.Lines)-i); v.shows(l) && number < until {
					numbers = append(numbers, number)
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

// endOf returns the number of the line behind the last one, so far. The control plane does not say it: the steps say
// where those that have ended do, and from there it is looked for in steps that grow.
func (a *app) endOf(cl *client.Client, id string, attempt int) (of int, end int64, err error) {
	w, err := cl.Workflow(a.ctx, id)
	if err != nil {
		return 0, 0, err
	}
	low, stride := int64(0), int64(logPage) // below low there are lines
	if attempt == 0 || attempt == w.Attempt {
		for _, s := range w.Steps {
			low = max(low, s.LogEnd)
		}
		stride = 1
	}
	there := func(line int64) (int64, error) {
		page, err := cl.Logs(a.ctx, id, attempt, line, 1, 0)
		if err == nil && attempt == 0 {
			attempt = page.Attempt
		}
		if err != nil || len(page.Lines) == 0 {
			return 0, err
		}
		return page.Next, nil
	}
	high := low // at high there is none
	for {
		next, err := there(high)
		if err != nil {
			return 0, 0, err
		}
		if next == 0 {
			break
		}
		low, high, stride = next, next+stride, stride*4
	}
	for low < high {
		middle := (low + high) / 2
		next, err := there(middle)
		switch {
		case err != nil:
			return 0, 0, err
		case next == 0:
			high = middle
		default:
			low = next
		}
	}
	return attempt, low, nil
}
