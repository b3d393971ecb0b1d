package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// Stories rely on this: what a page does wrong is noticed.
func TestTab_NoticesWhatPagesDoWrong(t *testing.T) {
	pages := map[string]string{ // what is said, and the page
		"policy broken":                  `<p style="color: red">styled</p>`,
		"security":                       `<img src="data:image/png;base64,AAAA">`,
		"exception":                      `<script src="/throws.js"></script>`,
		"console.error: \"from a page\"": `<script src="/complains.js"></script>`,
		"a dialog opened: hello":         `<script src="/alerts.js"></script>`,
		"404":                            `<script src="/missing.js"></script>`,
		"request failed":                 `<script src="/breaks.js"></script>`,
	}
	scripts := map[string]string{
		"/throws.js": `null.x`, "/complains.js": `console.error("from a page")`, "/alerts.js": `alert("hello")`,
	}
	var body string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch js := scripts[r.URL.Path]; {
		case js != "":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, js)
		case r.URL.Path == "/breaks.js":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/favicon.ico":
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/":
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; img-src 'self'")
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!DOCTYPE html><body>%s<p>all of it`, body)
		default:
			http.NotFound(w, r)
		}
	}))
	defer site.Close()
	for said, page := range pages {
		body = page
		b := newTab(browser, t, nil)
		b.goes(site.URL)
		b.sees("all of it")
		got := b.problems()
		b.expects("")
		if !slices.ContainsFunc(got, func(p string) bool { return strings.Contains(p, said) }) {
			t.Errorf("of %s was heard: %q", page, got)
		}
	}
	body = ""
	b := newTab(browser, t, nil)
	b.goes(site.URL)
	b.sees("all of it")
	if got := b.problems(); len(got) > 0 {
		t.Errorf("of a page without fault was heard: %q", got)
	}
	b.expects("")
}

// Those that look for faults find them.
func TestLooks_FindsFaults(t *testing.T) {
	b := newTab(browser, t, nil)
	b.goes("about:blank")
	eval[string](b, `document.documentElement.innerHTML = '<body style="background: #fff"><main><p style="color: #999">faint</p><p style="color: #000; opacity: .3">seen through</p><p style="color: #949494; font-size: 30px">large</p><p style="color: #333">fine</p><input placeholder="typed"><button></button><i id="x"></i><b id="x"></b><table><tr><td>1</table></main>'`)
	for _, want := range []string{"P.: faint", "P.: seen through"} {
		if got := eval[[]string](b, faint); len(got) != 2 || !slices.ContainsFunc(got, func(f string) bool { return strings.HasSuffix(f, want) }) {
			t.Errorf("%q is not among the faint texts: %q", want, got)
		}
	}
	got := append(eval[[]string](b, faults), b.nameless()...)
	for _, want := range []string{"0 first headings", "no language", "no title", "id x stands twice", "a table has no headings", "a field has no label", `a control has no name: "button"`} {
		if !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("%q is not among the faults: %q", want, got)
		}
	}
}
