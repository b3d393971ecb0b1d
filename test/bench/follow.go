package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/figures"
)

// follow measures how long a line takes from a command to whoever follows the run with the program, which was there
// before the command began.
func follow(ctx context.Context, b *bench) (err error) {
	lines := 400
	if b.quick {
		lines = 150
	}
	const aim = time.Second
	b.out.Heading("Line to follower: printed by a command, read from `dayfly run --follow`; a line each 70 ms")
	w, err := open(ctx, b, 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.put(ctx, "follow", fmt.Sprintf("for n in $(seq %d); do date +%%s%%N; sleep 0.07; done", lines)); err != nil {
		return err
	}
	token, err := w.up.AdminToken()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.dayfly, "run", "follow", "--op", "update", "--yes", "--follow")
	cmd.Env = []string{"DAYFLY_URL=" + w.up.URL(), "DAYFLY_API_TOKEN=" + token, "HOME=" + b.temp}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
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
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("run --follow: %w", err)
	}
	if len(took) != lines {
		return fmt.Errorf("%d lines of %d came", len(took), lines)
	}
	p95 := took.At(0.95)
	b.out.Line("%d lines: p50 %s, p95 %s, the slowest %s", len(took), ms(took.At(0.5)), ms(p95), ms(took.At(1)))
	b.out.Judge(p95 <= aim, "line to follower, p95", ms(p95), "<= "+aim.String())
	return nil
}
