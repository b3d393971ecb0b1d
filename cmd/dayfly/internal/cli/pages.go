package cli

import (
	"context"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
)

// pageWait bounds the question whether there are pages.
const pageWait = time.Second

// PageAddress is the address of a page of the control plane in use; empty, if that serves none.
func (a *App) PageAddress(path string) string {
	to, err := credentials.Find(a.Getenv)
	if err != nil || !ServesPages(a.Ctx, to.URL) {
		return ""
	}
	return to.URL + path
}

// ServesPages reports whether the control plane at an address serves pages.
func ServesPages(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/", nil)
	if err != nil {
		return false
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := c.Do(r) // without the token: the pages have a sign-in of their own
	if err != nil {
		return false
	}
	defer answer.Body.Close() //nolint:errcheck // it is not read
	return answer.Header.Get("Content-Security-Policy") != "" && answer.StatusCode < http.StatusBadRequest
}

// RunPage is the line that a result for people ends with; empty elsewhere.
func (a *App) RunPage(id string) string {
	if a.Style().Height == 0 {
		return ""
	}
	if address := a.PageAddress("/runs/" + id); address != "" {
		return "page  " + address
	}
	return ""
}
