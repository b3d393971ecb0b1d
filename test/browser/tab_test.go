package browser_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	scratch string          // a directory for this run of the tests
	browser context.Context // of the one Chromium that all stories share

	failures = flag.String("failures", filepath.Join("..", "..", "dist", "browser"), "directory for the pictures of failed stories")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if scratch, err = os.MkdirTemp("", "dayfly-browser-"); err != nil {
		return 1, err
	}
	// The browser's last processes may still write while it is removed.
	defer func() {
		for range 5 {
			if os.RemoveAll(scratch) == nil {
				return
			}
		}
	}()
	if err := os.Chmod(scratch, 0o711); err != nil { //nolint:gosec // engines of other users go through it
		return 1, err
	}
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if program, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return 1, errors.New("there is no chromium on PATH; on Debian: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(filepath.Join(scratch, "profile")))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which Chromium asks of root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var closeBrowser context.CancelFunc
	browser, closeBrowser = chromedp.NewContext(allocator)
	defer closeBrowser()
	if err := chromedp.Do(browser); err != nil {
		return 1, fmt.Errorf("start %s: %w", program, err)
	}
	code = m.Run()
	ending, cancel := context.WithTimeout(browser, 10*time.Second)
	defer cancel()
	return code, chromedp.Cancel(ending)
}

// tab is one tab with cookies of its own. Whatever its pages complain about fails the story.
type tab struct {
	t   *testing.T
	s   *server
	ctx context.Context

	mu       sync.Mutex
	wrong    []string
	expected []*regexp.Regexp
}

// tab opens a tab of somebody who is not signed in.
func (s *server) tab() *tab {
	s.t.Helper()
	return newTab(browser, s.t, s, chromedp.WithNewBrowserContext())
}

// beside opens another tab of the same person.
func (b *tab) beside() *tab {
	b.t.Helper()
	return newTab(b.ctx, b.t, b.s)
}

func newTab(parent context.Context, t *testing.T, s *server, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t, s: s}
	ctx, closeTab := chromedp.NewContext(parent, append(options, chromedp.WithListener(b.hears))...)
	b.ctx = ctx
	t.Cleanup(func() {
		b.complaints()
		closeTab()
	})
	b.must(chromedp.Do(ctx, tell))
	b.size(1280)
	return b
}

// tell makes a page report what breaks its policy.
var tell = call(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
	Source: `addEventListener("securitypolicyviolation", e => console.error("policy broken:", e.violatedDirective, e.blockedURI))`,
})

// complaints fails the story with what its pages complained about.
func (b *tab) complaints() {
	b.t.Helper()
	if b.t.Failed() {
		b.picture()
	}
	for _, w := range b.problems() {
		b.t.Errorf("the page says: %s", w)
	}
}

// problems are the complaints that nothing expected.
func (b *tab) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.wrong), func(w string) bool {
		return slices.ContainsFunc(b.expected, func(e *regexp.Regexp) bool { return e.MatchString(w) })
	})
}

// expects says that a complaint is part of the story.
func (b *tab) expects(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, regexp.MustCompile(pattern))
}

// hears keeps what the browser reports of its pages.
func (b *tab) hears(event any) {
	var wrong string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			wrong = fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		wrong = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			wrong += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			wrong = "console." + string(e.Type) + ":"
			for _, a := range e.Args {
				wrong += " " + string(a.Value) + a.Description
			}
		}
	case *network.EventLoadingFailed:
		if !e.Canceled && e.ErrorText != "net::ERR_ABORTED" { // a page that is left ends its own requests
			wrong = fmt.Sprintf("request failed: %s %s", e.ErrorText, e.BlockedReason)
		}
	case *page.EventJavascriptDialogOpening:
		wrong = "a dialog opened: " + e.Message
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
	if wrong != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrong = append(b.wrong, wrong)
	}
}

// must fails the story with what the page shows.
func (b *tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.fail("%v", err)
	}
}

func (b *tab) fail(format string, args ...any) {
	b.t.Helper()
	text, err := b.try(`location.href + "\n" + document.body.innerText`)
	if err != nil {
		text = err.Error()
	}
	b.t.Fatalf("%s\nthe page:\n%s", fmt.Sprintf(format, args...), text)
}

// try evaluates an expression that gives a text.
func (b *tab) try(js string) (string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string](js))
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, js string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	if err != nil {
		b.fail("%s: %v", js, err)
	}
	return out
}

// do runs steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	b.must(chromedp.Do(ctx, steps...))
}

// call is a command of the protocol as a step.
func call[P, R any](cmd cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = chromedp.Call(ctx, cmd, params)
		return none, err
	}
}

// goes opens a page by its path, or by its whole address.
func (b *tab) goes(to string) {
	b.t.Helper()
	if strings.HasPrefix(to, "/") {
		to = b.s.url(to)
	}
	b.do(chromedp.Navigate(to))
}

// waits waits until an expression holds in whatever page the tab then shows.
func (b *tab) waits(js string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// A page that is just being left gives an error.
		if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+js+")")); err == nil && ok {
			return
		}
		select {
		case <-ctx.Done():
			b.fail("it did not come to this: %s", js)
		case <-tick.C:
		}
	}
}

// text is what can be read on the page.
func (b *tab) text() string { b.t.Helper(); return eval[string](b, `document.body.innerText`) }

// sees waits until a text can be read on the page, whatever its case.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.waits(`document.body?.innerText.toLowerCase().includes(` + strconv.Quote(strings.ToLower(text)) + `)`)
}

// at waits until the tab is at a path.
func (b *tab) at(path string) {
	b.t.Helper()
	b.waits(`document.readyState === "complete" && location.pathname + location.search === ` + strconv.Quote(path))
}

// find is the first visible element of a selector that has a text.
func find(selector, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].find(e => e.checkVisibility({visibilityProperty: true}) && (e.innerText || e.value || "").includes(%q))`, selector, text)
}

// clicks clicks the first visible element of a selector, or that of it which has a text.
func (b *tab) clicks(selector string, text ...string) {
	b.t.Helper()
	e := find(selector, strings.Join(text, " "))
	b.waits(e)
	at := eval[[]float64](b, `(() => {
		const e = `+e+`
		e.scrollIntoView({block: "center", behavior: "instant"})
		const r = e.getClientRects()[0]
		return [r.x + r.width / 2, r.y + r.height / 2]
	})()`)
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// fills replaces what a field holds.
func (b *tab) fills(selector, text string) {
	b.t.Helper()
	// A page that still scrolls moves away under the click.
	eventually(b.t, selector+" has the focus", func() bool {
		b.clicks(selector)
		return eval[bool](b, `document.activeElement.matches(`+strconv.Quote(selector)+`)`)
	})
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.select?.()`), call(input.InsertText, input.InsertTextParams{Text: text}))
}

// presses presses keys, one after the other. As with a keyboard, a key that the page takes for itself types nothing.
func (b *tab) presses(keys string) {
	b.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		b.do(call(input.DispatchKeyEvent, down), call(input.DispatchKeyEvent, up))
	}
}

// size sets the width of the window.
func (b *tab) size(width int64) {
	b.t.Helper()
	height := int64(900)
	if width < 500 {
		height = 844
	}
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme says which colours the person likes: light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	b.do(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}))
}

// scripts lets pages run scripts, or not.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}))
}

// picture keeps a picture of the page of a failed story.
func (b *tab) picture() {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	name := filepath.Join(*failures, strings.ReplaceAll(b.t.Name(), "/", "_")+".png")
	if err = errors.Join(err, os.MkdirAll(*failures, 0o755)); err == nil {
		err = os.WriteFile(name, png, 0o644)
	}
	b.t.Logf("picture: %s (%v)", name, err)
}

// signs signs in with the token of somebody.
func (b *tab) signs(token string) *tab {
	b.t.Helper()
	b.goes("/signin")
	b.fills("input[name=token]", token)
	b.clicks("main button")
	b.at("/")
	return b
}

// enters opens a tab of the administrator.
func (s *server) enters() *tab { s.t.Helper(); return s.tab().signs(s.Token) }
