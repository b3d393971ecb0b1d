package bench_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// BenchmarkFollow measures how long a line takes from a command, which prints one each 70 ms, to a program that
// follows the run from before the command begins.
func BenchmarkFollow(b *testing.B) {
	const aim = time.Second
	lines := quick(400, 150)
	w := open(b, 4)
	w.put(b, "follow", fmt.Sprintf("for n in $(seq %d); do date +%%s%%N; sleep 0.07; done", lines))
	token, err := w.up.AdminToken()
	check(b, err)
	cmd := exec.CommandContext(b.Context(), program(b, "dayfly"), "run", "follow", "--op", "update", "--yes", "--follow")
	cmd.Env = []string{"DAYFLY_URL=" + w.up.URL(), "DAYFLY_API_TOKEN=" + token, "HOME=" + b.TempDir()}
	out, err := cmd.StdoutPipe()
	check(b, err)
	check(b, cmd.Start())
	var took figures.Sample
	for in := bufio.NewScanner(out); in.Scan(); {
		fields := strings.Fields(in.Text())
		if len(fields) == 0 {
			continue
		}
		if printed, err := strconv.ParseInt(fields[len(fields)-1], 10, 64); err == nil && printed > 1e18 {
			took = append(took, time.Since(time.Unix(0, printed)))
		}
	}
	check(b, cmd.Wait())
	if len(took) != lines {
		b.Fatalf("%d lines of %d came", len(took), lines)
	}
	p95 := took.At(0.95)
	b.Logf("line to follower, %d lines: p50 %s, p95 %s, the slowest %s", len(took), ms(took.At(0.5)), ms(p95), ms(took.At(1)))
	judge(b, p95 <= aim, "line to follower, p95", ms(p95), "<= "+aim.String())
	metric(b, milliseconds(p95), "p95-ms")
}
