package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
)

// browse signs in to the console with a one-time link, as a browser does, and looks at a run that has not ended. It
// returns the address of the run's page.
func browse(ctx context.Context, link, run string) (string, error) {
	to, err := url.Parse(link)
	if err != nil {
		return "", err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	browser, site, path := &http.Client{Jar: jar}, to.Scheme+"://"+to.Host, "/runs/"+run
	form := url.Values{"once": {to.Query().Get("once")}, "next": {path}}.Encode()
	for _, step := range []struct {
		method, address, form string
		status                int
		shows                 string
	}{
		{http.MethodGet, site + path, "", http.StatusOK, "<h1>Sign in</h1>"},
		{http.MethodGet, link, "", http.StatusOK, "This link signs you in once."},
		{http.MethodPost, site + "/signin", form, http.StatusOK, " · " + run}, // it leads to the run's page
		{http.MethodGet, site + "/", "", http.StatusOK, `href="` + path},
		{http.MethodGet, link, "", http.StatusNotFound, "this link was used before"},
	} {
		r, err := http.NewRequestWithContext(ctx, step.method, step.address, strings.NewReader(step.form))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", site)
		answer, err := browser.Do(r)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<20))
		_ = answer.Body.Close()
		if err == nil && (answer.StatusCode != step.status || !strings.Contains(string(text), step.shows)) {
			err = fmt.Errorf("%s %s is answered %d and must show %s: %s", step.method, r.URL.Path, answer.StatusCode, step.shows, text)
		}
		if err != nil {
			return "", err
		}
	}
	return site + path, nil
}
