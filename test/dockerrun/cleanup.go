package dockerrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
)

// The labels of everything that is made here.
const (
	labelTest  = "dev.dayfly.test"
	labelOwner = "dev.dayfly.test.owner" // the process that made it
)

// self names this process: the machine's boot and the container that it is in, its number, and when it began.
func self() (string, error) {
	boot, err := cleanup.Boot()
	if err != nil {
		return "", err
	}
	start, err := cleanup.ProcessStart(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d/%d", boot, os.Getpid(), start), nil
}

// gone reports whether the process that a label names has ended. Of one in another container nothing is known.
func gone(owner string) (bool, error) {
	of := strings.Split(owner, "/") // kernel, first process, number, begin
	boot, err := cleanup.Boot()
	if err != nil || len(of) != 4 {
		return false, err
	}
	kernel, _, _ := strings.Cut(boot, "/")
	if of[0] != kernel {
		return true, nil
	}
	pid, err := strconv.Atoi(of[2])
	if err != nil || of[0]+"/"+of[1] != boot {
		return false, err
	}
	start, err := cleanup.ProcessStart(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return strconv.FormatUint(start, 10) != of[3], err
}

// RemoveLeft removes the containers and networks of processes that could not do so themselves.
func (e *Engine) RemoveLeft(ctx context.Context) error {
	filters, err := json.Marshal(map[string][]string{"label": {labelOwner}})
	if err != nil {
		return err
	}
	var problems []error
	for _, kind := range []struct{ list, remove, options string }{
		{"/containers/json?all=1&filters=", "/containers/", "?force=1&v=1"}, {"/networks?filters=", "/networks/", ""},
	} {
		var found []struct {
			ID     string `json:"Id"`
			Labels map[string]string
		}
		if err := e.call(ctx, http.MethodGet, kind.list+url.QueryEscape(string(filters)), nil, &found); err != nil {
			return fmt.Errorf("look for what was left: %w", err)
		}
		for _, f := range found {
			left, err := gone(f.Labels[labelOwner])
			if err == nil && left {
				err = e.call(ctx, http.MethodDelete, kind.remove+f.ID+kind.options, nil, nil)
			}
			// Another process may be at it, too.
			if code := status(err); err != nil && code != http.StatusNotFound && code != http.StatusConflict {
				problems = append(problems, fmt.Errorf("remove what was left: %w", err))
			}
		}
	}
	return errors.Join(problems...)
}
