package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of a log on a page.
const (
	windowLines = 2000
	windowText  = 512 << 10 // bytes of all lines
	lineText    = 16 << 10  // bytes of one line
	logPage     = 1000      // lines of one call
	maxFound    = 200
	searchFor   = 2 * time.Second
)

// logData is the part of a run's log that a page shows.
type logData struct {
	run             string
	attempt, latest int // latest: of the run
	groups          []logGroup
	first, next     int64 // numbers of the first line here and of the line after the last, counted from 0
	end             int64 // how many lines the log has
	missing         string
	live            liveData
	search          logSearch
}

// logGroup is lines in a row that one step wrote.
type logGroup struct {
	step  string
	mark  mark
	took  string
	open  bool
	lines []logLine
}

// logLine is a line of a log; n counts from 1.
type logLine struct {
	n    int64
	at   time.Time
	step string
	text string
	more bool // it goes on in the next one
	cut  bool // it is longer than the shown part
}

// logSearch is the result of a search.
type logSearch struct {
	q     string
	found []logMatch
	next  int64 // where it stopped; 0: it went through all
}

type logMatch struct {
	n                   int64
	before, hit, behind string
}

// number reads a number of a query; missing means 0.
func number(q url.Values, name string) (int64, error) {
	s := q.Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < -1 || n > 1e12 {
		return 0, workflow.Refuse(workflow.ErrInvalid, name, "%s is not a number that this address can have", text.Quote(s, 20))
	}
	return n, nil
}

// readLog reads the part of a run's log that the address of a page asks for.
func (c *Console) readLog(r *http.Request, v *view, w api.Workflow) (l logData, err error) {
	ctx, q := r.Context(), r.URL.Query()
	var asked [3]int64
	for i, name := range []string{"attempt", "line", "after"} {
		if asked[i], err = number(q, name); err != nil {
			return l, err
		}
	}
	line := asked[1]
	l.run, l.latest = w.ID, w.Attempt
	if l.attempt, l.end, err = v.plane.LogEnd(ctx, v.who, w.ID, int(asked[0])); err != nil {
		return l, err
	}
	if l.search.q = strings.TrimSpace(text.Head(q.Get("q"), 200)); l.search.q != "" {
		err = searchLog(ctx, v, &l, asked[2])
		l.live = liveOf(w, true, -1)
		return l, l.past(err)
	}
	l.first = firstLine(w, l, line)
	lines, next, done, err := readLines(ctx, v, w.ID, l.attempt, l.first, windowLines)
	if err = l.past(err); err != nil || l.missing != "" {
		return l, err
	}
	l.next, l.end = next, max(l.end, next)
	l.groups = groups(lines, stepsOf(w, l.attempt), line)
	from := l.next
	if l.next < l.end { // the end is on another page
		from = -1
	}
	l.live = liveOf(w, done, from)
	if len(lines) == 0 {
		l.missing = waitsFor(w)
	}
	return l, nil
}

// past notes that a log is not kept any longer.
func (l *logData) past(err error) error {
	if errors.Is(err, workflow.ErrExpired) {
		l.missing, err = api.ProblemFor(err).Detail, nil
	}
	return err
}

// waitsFor says why there is no line yet.
func waitsFor(w api.Workflow) string {
	switch {
	case w.State.Terminal() && w.StartedAt == nil:
		return "There is no log: the run ended before it started."
	case w.State.Terminal():
		return "The run printed nothing."
	case w.State == workflow.Pending:
		return "No lines yet: the log begins when the pool " + clean(w.Pool) + " has taken the run and started it."
	case w.StartedAt == nil:
		return "No lines yet: the run's task is starting."
	}
	return "No lines yet: the run has started and will print here."
}

// firstLine is where a page begins: around the line that is asked for, else so that it shows the end of the log. If a
// step failed long before that, it shows the end of that step.
func firstLine(w api.Workflow, l logData, line int64) int64 {
	if line > 0 {
		return max(0, min(line, l.end)-windowLines/2)
	}
	first := max(0, l.end-windowLines)
	for _, s := range stepsOf(w, l.attempt) {
		if s.Status == workflow.StepFailed && s.LogEnd > 0 && s.LogEnd <= first {
			return max(0, s.LogEnd-windowLines/2)
		}
	}
	return first
}

// unfinished is a step that the end of its run has cut off.
const unfinished workflow.StepStatus = "unfinished"

// stepsOf is the steps of an attempt. Those of earlier ones are not in the answer about a run.
func stepsOf(w api.Workflow, attempt int) []api.Step {
	if attempt != w.Attempt {
		return nil
	}
	steps := slices.Clone(w.Steps)
	for i := range steps {
		if steps[i].Status == workflow.StepRunning && w.State.Terminal() {
			steps[i].Status = unfinished
		}
	}
	return steps
}

// readLines reads lines from a number on, until there are most of them, or so much text that a page takes no more.
// Lines that were sent in pieces are one. next is the number of the line after them; done says that none will come.
func readLines(ctx context.Context, v *view, run string, attempt int, from int64, most int) (lines []logLine, next int64, done bool, err error) {
	size, limit := 0, logPage
	for next = from; len(lines) < most && size < windowText && !done; {
		page, err := v.plane.Logs(ctx, v.who, run, attempt, next, min(limit, most-len(lines)), 0)
		if err != nil {
			return nil, 0, false, err
		}
		n := len(page.Lines)
		if n == 0 {
			return lines, next, page.Done, nil
		}
		// Where lines were lost, numbers are left out, and a page does not say which: read until it has no gap.
		if n > 1 && page.Next-next != int64(n) {
			limit = n / 2
			continue
		}
		for i, in := range page.Lines {
			lines = addLine(lines, logLine{n: page.Next - int64(n-i) + 1, at: in.At, step: in.Step, text: in.Text, more: in.More})
			size += min(len(in.Text), lineText)
		}
		next, done, limit = page.Next, page.Done, logPage
	}
	return lines, next, done, nil
}

// addLine adds a line, or to the last line its next piece.
func addLine(lines []logLine, l logLine) []logLine {
	if n := len(lines); n > 0 && lines[n-1].more && lines[n-1].step == l.step {
		last := &lines[n-1]
		last.text, last.more = last.text+l.text, l.more
		l, lines = *last, lines[:n-1]
	}
	if len(l.text) > lineText {
		l.text, l.cut = text.Head(l.text, lineText), true
	}
	return append(lines, l)
}

// groups puts lines under their steps. Open are the step that runs, the one that failed, the one with the line that is
// asked for, and if there is none of these, the last. It is a pure function.
func groups(lines []logLine, steps []api.Step, line int64) (out []logGroup) {
	for _, l := range lines {
		if len(out) == 0 || out[len(out)-1].step != l.step {
			out = append(out, logGroup{step: l.step})
		}
		g := &out[len(out)-1]
		g.lines = append(g.lines, l)
		g.open = g.open || l.n == line
	}
	open := false
	for i := range out {
		g := &out[i]
		g.mark = markOfStep("")
		if s := stepAt(steps, g.step, g.lines[0].n); s != nil {
			g.mark, g.took = markOfStep(s.Status), took(*s)
			g.open = g.open || s.Status == workflow.StepRunning || s.Status == workflow.StepFailed || s.Status == unfinished
		}
		open = open || g.open
	}
	if !open && len(out) > 0 {
		out[len(out)-1].open = true
	}
	return out
}

// stepAt is the step that wrote a line; nil if it is not known.
func stepAt(steps []api.Step, name string, n int64) *api.Step {
	i := slices.IndexFunc(steps, func(s api.Step) bool { return s.Name == name && (s.LogEnd == 0 || s.LogEnd >= n) })
	if i < 0 {
		return nil
	}
	return &steps[i]
}

// took is how long a step took, or that it did not end; empty while it runs.
func took(s api.Step) string {
	if s.Status == unfinished {
		return "not finished"
	}
	if s.Status == workflow.StepRunning || s.Seconds <= 0 {
		return ""
	}
	return runtext.Long(api.Seconds(s.Seconds))
}

// markOfStep is the state of a step; that of one that did not end has no word.
func markOfStep(s workflow.StepStatus) mark {
	word := string(s)
	if s == unfinished {
		word = ""
	}
	return signed(string(s), word)
}

// searchLog looks for a text in a whole log and ignores case. It stops at its bounds and notes where.
func searchLog(ctx context.Context, v *view, l *logData, after int64) error {
	pattern := regexp.MustCompile("(?i)" + regexp.QuoteMeta(l.search.q))
	until, size := time.Now().Add(searchFor), 0
	for from := max(after, 0); ; {
		lines, next, _, err := readLines(ctx, v, l.run, l.attempt, from, logPage)
		if err != nil || len(lines) == 0 {
			return err
		}
		for _, line := range lines {
			s := plain(line.text)
			at := pattern.FindStringIndex(s)
			if at == nil {
				continue
			}
			// So much of the line that the hit can be read.
			const around = 300
			before, behind := s[:at[0]], text.Cut(s[at[1]:], around)
			if len(before) > around {
				before = "..." + strings.ToValidUTF8(before[len(before)-around:], "")
			}
			l.search.found = append(l.search.found, logMatch{line.n, before, s[at[0]:at[1]], behind})
			if size += len(before) + len(behind); len(l.search.found) == maxFound || size > windowText {
				l.search.next = line.n
				return nil
			}
		}
		if from = next; time.Now().After(until) {
			l.search.next = next
			return nil
		}
	}
}

// sum says how many lines a search found, and where it stopped.
func (s logSearch) sum() string {
	if s.next == 0 {
		return text.Count(len(s.found), "line") + " found."
	}
	return fmt.Sprintf("%s found up to line %d, where the search stopped.", text.Count(len(s.found), "line"), s.next)
}

// lines is how many lines the log has.
func (l logData) lines() string { return text.Count(int(l.end), "line") }

// attempts are those of the run, at most the last ten.
func (l logData) attempts() (out []int) {
	for n := max(1, l.latest-9); n <= l.latest; n++ {
		out = append(out, n)
	}
	return out
}

// to is an address of this log's page.
func (l logData) to(key, value, anchor string) string {
	q := url.Values{}
	if l.attempt != l.latest {
		q.Set("attempt", strconv.Itoa(l.attempt))
	}
	if key != "" {
		q.Set(key, value)
	}
	u := url.URL{Path: runPath(l.run), RawQuery: q.Encode(), Fragment: anchor}
	return u.String()
}

// further is where a search that stopped goes on.
func (l logData) further() string {
	return strings.Replace(l.to("q", l.search.q, "log"), "?", fmt.Sprintf("?after=%d&", l.search.next), 1)
}

// line is the address of a line.
func (l logData) line(n int64) string {
	s := strconv.FormatInt(n, 10)
	return l.to("line", s, "L"+s)
}

// download sends a log as text: without colours, and without sequences that a terminal would obey.
func (c *Console) download(w http.ResponseWriter, r *http.Request) {
	v, ok := c.enter(w, r)
	if !ok {
		return
	}
	run, left := r.PathValue("id"), c.cfg.Download
	attempt, err := number(r.URL.Query(), "attempt")
	var page api.LogPage
	if err == nil {
		page, err = v.plane.Logs(r.Context(), v.who, run, int(attempt), 0, logPage, 0)
	}
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d.log"`, run, page.Attempt))
	for len(page.Lines) > 0 && err == nil {
		var b strings.Builder
		for _, l := range page.Lines {
			b.WriteString(plain(l.Text))
			if !l.More {
				b.WriteByte('\n')
			}
		}
		s := b.String()
		if c.cfg.Download > 0 && int64(len(s)) > left {
			s = text.Head(s, int(left)) + fmt.Sprintf("\n[dayfly] an answer holds no more; dayfly workflow logs %s --attempt %d has all of it\n", run, page.Attempt)
			_, _ = w.Write([]byte(s))
			return
		}
		left -= int64(len(s))
		if _, err = w.Write([]byte(s)); err != nil {
			return // nobody reads on
		}
		page, err = v.plane.Logs(r.Context(), v.who, run, page.Attempt, page.Next, logPage, 0)
	}
	if err != nil {
		_, _ = w.Write([]byte("[dayfly] the log could not be read on from here: " + api.ProblemFor(err).Detail + "\n"))
	}
}
