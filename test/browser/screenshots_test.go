package browser_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "directory for pictures of all pages")

// TestScreenshots writes the pages with demo data, at three widths, light and dark.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("make screenshots")
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	s := up(t)
	s.pace = 0.2
	d := s.demo()
	person, stranger := d.enters(), d.tab()
	for _, p := range d.pages() {
		b := person
		if p.name == "signin" {
			b = stranger
		}
		b.goes(p.path)
		for _, width := range []int64{1280, 760, 390} {
			b.size(width)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.saves(fmt.Sprintf("%s-%d-%s", p.name, width, scheme))
			}
		}
	}
}

// saves writes a picture of the window.
func (b *tab) saves(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.must(err)
	b.must(os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644))
}
