package schedules

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

func TestTimesOf_RefusesWhatIsNotFiveFields(t *testing.T) {
	for _, cron := range []string{
		"", "* * * *", "* * * * * *", "0 0 1 1 * 2027", "@reboot", "@yearly", "@everysecond", "@5minutes", "60 * * * *", "5,99 * * * *",
		"* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "0 0 L * *", "0 0 15W * *", "0 0 * * 1#2", "? * * * *",
		"0 0 * * MOO", "a b c d e", "-1 * * * *", "1,,2 * * * *", "0 0 * JANU *", "* * * * * ; rm", "0x1 * * * *",
		"*/60 * * * *", "5-10/90 * * * *", "* */24 * * *", "* * */32 * *", "* * * */13 *", "* * * * */8", "* * * * 1,*/99",
	} {
		if _, err := timesOf(cron, ""); err == nil {
			t.Errorf("%q is taken", cron)
		}
	}
	for _, zone := range []string{"Local", "local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "CEST5"} {
		if _, err := timesOf("@daily", zone); err == nil {
			t.Errorf("time zone %q is taken", zone)
		}
	}
	for _, cron := range []string{"@hourly", "@daily", "@weekly", "@monthly", "*/15 8-18 * * MON-FRI", "0 0 1,15 jan,Jul 7", " 5  4 * * * ", "0-30/10 3 * * *", "*/59 */23 */31 */12 */7"} {
		if _, err := timesOf(cron, "America/New_York"); err != nil {
			t.Errorf("%q: %v", cron, err)
		}
	}
}

func TestApart_IsTheShortestDistance(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for cron, want := range map[string]time.Duration{
		"* * * * *": time.Minute, "@hourly": time.Hour, "@daily": 24 * time.Hour, "0,5 3 * * *": 5 * time.Minute, "@monthly": 28 * 24 * time.Hour,
		"0 23 31 12 *": 365 * 24 * time.Hour, "0 0,23 * * *": time.Hour, "0 0 31 2 *": 0, "0 0 30 2 MON": 24 * time.Hour * 7,
	} {
		c, err := timesOf(cron, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.apart(now); got != want {
			t.Errorf("%s: %s apart, want %s", cron, got, want)
		}
	}
}

// at reads a time with its offset, so that one that exists twice is clear.
func at(t *testing.T, s string) time.Time {
	t.Helper()
	out, err := time.Parse("2006-01-02 15:04 -07", s)
	if err != nil {
		t.Fatal(err)
	}
	return out.UTC()
}

func TestTimes_WhereTheClocksAreSet(t *testing.T) {
	for name, tt := range map[string]struct {
		cron, zone string
		from       string
		want       []string
	}{
		"a time that does not exist is the moment of the change": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00 +01", []string{"2026-03-29 03:00 +02", "2026-03-30 02:30 +02"},
		},
		"two of them are one": {
			"0,30 2 * * *", "America/New_York", "2026-03-07 12:00 -05", []string{"2026-03-08 03:00 -04", "2026-03-09 02:00 -04", "2026-03-09 02:30 -04"},
		},
		"a time right after the change": {
			"0 3 * * *", "Europe/Berlin", "2026-03-28 12:00 +01", []string{"2026-03-29 03:00 +02", "2026-03-30 03:00 +02"},
		},
		"a time that does not exist and the one after it are one": {
			"30 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00 +01", []string{"2026-03-29 03:00 +02", "2026-03-29 03:30 +02", "2026-03-30 02:30 +02"},
		},
		"a time that exists twice is the first": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00 +02", []string{"2026-10-25 02:30 +02", "2026-10-26 02:30 +01"},
		},
		"in New York": {
			"30 1 * * *", "America/New_York", "2026-10-31 12:00 -04", []string{"2026-11-01 01:30 -04", "2026-11-02 01:30 -05"},
		},
		"from within the second of them": {
			"0,45 2 * * *", "Europe/Berlin", "2026-10-25 02:30 +01", []string{"2026-10-26 02:00 +01", "2026-10-26 02:45 +01"},
		},
		"the time at which they are put back": {
			"0 3 * * *", "Europe/Berlin", "2026-10-24 12:00 +02", []string{"2026-10-25 03:00 +01", "2026-10-26 03:00 +01"},
		},
		"every hour of the day that has 25": {
			"0 * * * *", "Europe/Berlin", "2026-10-25 01:30 +02", []string{"2026-10-25 02:00 +02", "2026-10-25 02:00 +01", "2026-10-25 03:00 +01"},
		},
		"every hour of the day that has 23": {
			"0 * * * *", "Europe/Berlin", "2026-03-29 00:30 +01", []string{"2026-03-29 01:00 +01", "2026-03-29 03:00 +02", "2026-03-29 04:00 +02"},
		},
		"every half hour over the change in New York": {
			"*/30 * * * *", "America/New_York", "2026-11-01 01:00 -04",
			[]string{"2026-11-01 01:30 -04", "2026-11-01 01:00 -05", "2026-11-01 01:30 -05", "2026-11-01 02:00 -05"},
		},
		"midnight of the zone": {"@daily", "Asia/Kolkata", "2026-05-04 12:00 +00", []string{"2026-05-04 18:30 +00", "2026-05-05 18:30 +00"}},
		"a zone without one":   {"@daily", "", "2026-05-04 12:00 +00", []string{"2026-05-05 00:00 +00"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := timesOf(tt.cron, tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			now := at(t, tt.from)
			for i, want := range tt.want {
				next := c.next(now)
				if !next.Equal(at(t, want)) {
					t.Fatalf("time %d after %s is %s, want %s", i+1, now.In(c.loc), next.In(c.loc), want)
				}
				now = next
			}
		})
	}
}

// last and next match a clock on the wall, minute by minute.
func TestTimes_AgainstAClockOnTheWall(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 4))
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	for range 40 {
		cron := strings.Join([]string{
			one("*", "0", "30", "*/15", "5,59", "0-10/5"), one("*", "0", "1", "2", "3", "1-3", "*/2", "2,23"), one("*", "*", "1", "25-31", "*/2", "8,29"),
			one("*", "*", "3", "10,11", "MAR-NOV/8"), one("*", "*", "SUN", "1-5", "7", "*/2"),
		}, " ")
		zone := one("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
		c, err := timesOf(cron, zone)
		if err != nil {
			t.Fatal(cron, err)
		}
		// Some days around a change of the clocks, minute by minute.
		start := time.Date(2026, time.Month(one("\x03", "\x0a", "\x0b")[0]), 1+r.IntN(27), 0, 0, 0, 0, time.UTC)
		var want []time.Time
		shown := map[string]bool{}
		walls := func(from, to time.Time, do func(wall time.Time)) { // those that no clock shows are between two minutes
			for w := from; !w.After(to); w = w.Add(time.Minute) {
				do(w)
			}
		}
		before := asWall(start, c.offset(start)).Add(-time.Minute)
		for now := start; now.Before(start.Add(4 * 24 * time.Hour)); now = now.Add(time.Minute) {
			wall := asWall(now, c.offset(now))
			first := wall
			if !c.hourly && wall.After(before) {
				first = before.Add(time.Minute)
			}
			is := false
			walls(first, wall, func(w time.Time) {
				key := w.Format(time.DateTime)
				is = is || matches(cron, w) && (c.hourly || !shown[key])
				shown[key] = true
			})
			if is {
				want = append(want, now)
			}
			if before = wall; !c.hourly {
				before = latestOf(before, wall)
			}
		}
		now, end := start.Add(-time.Minute), start.Add(4*24*time.Hour)
		for i := 0; ; i++ {
			now = c.next(now)
			if now.IsZero() || !now.Before(end) {
				if i != len(want) {
					t.Errorf("%s in %s from %s: %d times, want %d", cron, zone, start, i, len(want))
				}
				break
			}
			if i >= len(want) || !now.Equal(want[i]) {
				t.Errorf("%s in %s from %s: time %d is %s, want %v", cron, zone, start, i, now.In(c.loc), want)
				break
			}
		}
		for i, w := range want {
			until := end
			if i+1 < len(want) {
				until = want[i+1]
			}
			when := w.Add(time.Duration(r.Int64N(int64(until.Sub(w)))))
			if got := c.last(when); !got.Equal(w) {
				t.Errorf("%s in %s: the last before %s is %s, want %s", cron, zone, when.In(c.loc), got.In(c.loc), w.In(c.loc))
			}
		}
	}
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// matches says whether a cron expression has a minute, in the plainest way.
func matches(cron string, at time.Time) bool {
	fields := strings.Fields(cron)
	has := func(field string, value, first, last int) bool {
		for part := range strings.SplitSeq(field, ",") {
			span, step, _ := strings.Cut(part, "/")
			from, to, isRange := strings.Cut(span, "-")
			lo, hi := first, last
			if span != "*" {
				lo = number(from)
				if hi = lo; isRange {
					hi = number(to)
				}
			}
			by := max(1, number(step))
			for n := lo; n <= hi; n += by {
				if n == value || first == 0 && last == 7 && n%7 == value {
					return true
				}
			}
		}
		return false
	}
	day, week := has(fields[2], at.Day(), 1, 31), has(fields[4], int(at.Weekday()), 0, 7)
	days := day && week
	if !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") {
		days = day || week
	}
	return has(fields[0], at.Minute(), 0, 59) && has(fields[1], at.Hour(), 0, 23) && has(fields[3], int(at.Month()), 1, 12) && days
}

func number(s string) (n int) {
	switch s {
	case "SUN":
		return 0
	case "MAR":
		return 3
	case "NOV":
		return 11
	}
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

func FuzzTimesOf(f *testing.F) {
	for _, seed := range []string{"0 3 * * *", "*/15 8-18 * * MON-FRI", "@daily", "5-1 * * * *", "0 0 31 2 *", "99999999999999999999 * * * *"} {
		f.Add(seed)
	}
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, cron string) {
		c, err := timesOf(cron, "Europe/Berlin")
		if err != nil {
			return
		}
		next := c.next(now)
		if next.IsZero() {
			return
		}
		if !next.After(now) || !c.last(next).Equal(next) {
			t.Errorf("%q: next is %s, and the last then is %s", cron, next, c.last(next))
		}
	})
}

// With any series of passes, each workspace runs at most once for each time, never before its delay, and times that
// no pass saw are counted.
func TestDue_EachTimeOnceUnderRandomPasses(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 17))
	for range 40 {
		cron := []string{"*/10 * * * *", "0 3 * * *", "30 2 * * *", "0,40 1-3 * * *"}[r.IntN(4)]
		c, err := timesOf(cron, "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 10, 20+r.IntN(5), r.IntN(24), r.IntN(60), 0, 0, time.UTC)
		made, end := now, now.Add(5*24*time.Hour)
		spread := min(10*time.Minute, c.apart(now)/2)
		ws := target{id: record.NewID("ws_", now), made: made}
		seen, ran := 0, map[int64]bool{}
		for now.Before(end) {
			cy := cycle{times: c, at: c.last(now), since: made, spread: spread}
			d := cy.due(ws, now)
			switch d.do {
			case submit:
				if ran[cy.at.Unix()] {
					t.Fatalf("%s: %s is done twice", cron, cy.at)
				}
				if now.Before(cy.at.Add(cy.delay(ws.id))) {
					t.Fatalf("%s: too early", cron)
				}
				ran[cy.at.Unix()], ws.planned.At = true, cy.at
				seen += 1 + d.missed
			case later, nothing:
			default:
				t.Fatalf("it is %q", d.do)
			}
			step := time.Minute
			if r.IntN(30) == 0 {
				step = time.Duration(r.IntN(40*60)) * time.Minute
			}
			now = now.Add(step)
		}
		want := 0
		for at := c.next(made); !at.After(ws.planned.At); at = c.next(at) {
			want++
		}
		if len(ran) == 0 || seen != want {
			t.Errorf("%s: %d times run or counted of %d, %d runs", cron, seen, want, len(ran))
		}
	}
}

func TestDue_SaysWhyNot(t *testing.T) {
	c, err := timesOf("0 * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	hour := func(n int) time.Time { return time.Date(2026, 5, 4, n, 0, 0, 0, time.UTC) }
	base := cycle{times: c, at: hour(12), since: hour(8)}
	for name, tt := range map[string]struct {
		change func(c *cycle, t *target)
		do     verb
		missed int
		note   string
	}{
		"the first, after three that nobody saw": {func(*cycle, *target) {}, submit, 3, ""},
		"one after the other":                    {func(_ *cycle, t *target) { t.planned.At = hour(11) }, submit, 0, ""},
		"done":                                   {func(_ *cycle, t *target) { t.planned.At = hour(12) }, nothing, 0, ""},
		"before it was made":                     {func(c *cycle, _ *target) { c.since = hour(12) }, nothing, 0, ""},
		"before the workspace was made":          {func(_ *cycle, t *target) { t.made = hour(12).Add(time.Minute) }, nothing, 0, ""},
		"a workspace of today":                   {func(_ *cycle, t *target) { t.made = hour(10).Add(time.Minute) }, submit, 1, ""},
		"one that joined after it was done":      {func(c *cycle, _ *target) { c.done = hour(12) }, nothing, 0, ""},
		"one that joined after the one before":   {func(c *cycle, _ *target) { c.done = hour(11) }, submit, 0, ""},
		"paused":                                 {func(c *cycle, _ *target) { c.paused = true }, nothing, 0, ""},
		"in the pause that has ended":            {func(c *cycle, t *target) { c.resumed, t.planned.At = hour(12).Add(time.Minute), hour(9) }, nothing, 0, ""},
		"after a pause": {func(c *cycle, t *target) {
			c.resumed, t.planned.At = hour(11).Add(time.Minute), hour(9)
		}, submit, 2, ""},
		"the pool is disabled":    {func(_ *cycle, t *target) { t.off = "pool p is disabled" }, wait, 3, "pool p is disabled"},
		"the last is not over":    {func(_ *cycle, t *target) { t.running, t.planned.At = "wf_1", hour(11) }, skip, 0, "run wf_1 of this schedule has not ended"},
		"no time has come at all": {func(c *cycle, _ *target) { c.at = time.Time{} }, nothing, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cy, ws := base, target{id: "ws_1", made: hour(1)}
			tt.change(&cy, &ws)
			d := cy.due(ws, hour(12).Add(30*time.Minute))
			if d.do != tt.do || d.missed != tt.missed || d.note != tt.note {
				t.Errorf("it is %+v", d)
			}
		})
	}
}

func TestBetween_IsBounded(t *testing.T) {
	c, err := timesOf("* * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	if n := c.between(from, from.Add(record.Day)); n != api.MaxMissed {
		t.Errorf("%d", n)
	}
	if n := c.between(from, from.Add(5*time.Minute)); n != 4 {
		t.Errorf("%d", n)
	}
}
