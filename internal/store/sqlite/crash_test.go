package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
)

// pair returns a commit of two records in two partitions.
func pair(name string) []store.Op {
	return []store.Op{
		store.Put(store.Record{Key: store.Key{Part: "a", Sort: name}, Value: []byte("x")}, store.Absent),
		store.Put(store.Record{Key: store.Key{Part: "b", Sort: name}, Value: []byte("x")}, store.Absent),
	}
}

// writeUntilKilled commits pairs from several goroutines and prints the name of each when it was
// answered. The test binary does this when it is started with a path to write to.
func writeUntilKilled(path string) {
	s, err := sqlite.Open(context.Background(), path, sqlite.Config{})
	if err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
		return
	}
	var wg sync.WaitGroup
	var out sync.Mutex
	for worker := range 8 {
		wg.Go(func() {
			for i := range 1_000_000 {
				name := fmt.Sprintf("%d.%d", worker, i)
				if err := s.Commit(context.Background(), name, pair(name)...); err != nil {
					name = "failed: " + err.Error()
				}
				out.Lock()
				fmt.Fprintln(os.Stdout, name)
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

// Answered commits are there after the process was killed at any moment, each commit whole.
func TestStore_AnsweredCommitsSurviveAKill(t *testing.T) {
	path := dataFile(t)
	answered := map[string]bool{}
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
		cmd.Env = append(os.Environ(), "SQLITE_TEST_WRITE_TO="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		fresh := 0
		for lines.Scan() {
			name := lines.Text()
			if strings.HasPrefix(name, "failed") {
				t.Errorf("round %d: %s", round, name)
				fresh = 300
			} else if !answered[name] {
				answered[name] = true
				fresh++
			}
			if fresh >= 300 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("round %d: the writer ended by itself", round)
		}
		if t.Failed() {
			return
		}

		s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]int{}
		for _, part := range []string{"a", "b"} {
			scan := store.Scan{Part: part, Limit: 1000}
			for {
				page, err := s.Range(t.Context(), scan)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Records {
					there[r.Key.Sort]++
					if r.Version != 1 {
						t.Errorf("%s was applied %d times", r.Key, r.Version)
					}
				}
				if scan.After = page.Next; page.Next == "" {
					break
				}
			}
		}
		for name, n := range there {
			if n != 2 {
				t.Errorf("round %d: half of commit %s is there", round, name)
			}
		}
		for name := range answered {
			if there[name] == 0 {
				t.Errorf("round %d: commit %s was answered and is lost", round, name)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
