package console_test

import (
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/dayfly-dev/dayfly/internal/console"
)

func TestPaint_KeepsColoursAndNothingElse(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		"\x1b[0m":                           "",
		"a < b & c":                         "a &lt; b &amp; c",
		"\x1b[31mError\x1b[0m: <b>":         `<span class="term-fg31">Error</span>: &lt;b&gt;`,
		"\x1b[1;92mgood\x1b[m bye":          `<span class="term-fgi92 term-fg1">good</span> bye`,
		"\x1b[38;5;196mred\x1b[39m":         `<span class="term-fg31">red</span>`,
		"\x1b[48;2;0;200;200mcyan":          `<span class="term-bg46">cyan</span>`,
		"10%\r50%\r100%\r":                  "100%",
		"a\x1b[2Kb\x1b[3Ac\x1b]0;title\x07": "abc",
		"\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07":                     "click",
		"\x1b]1338;url='x.png'\x07\x1b]1337;File=name=eA==;inline=1:eA==\x07.": ".",
		"\x1b_bk;t=123\x07line": "line",
		"a\bb\x9b31mc\u009b":    "a␈b\uFFFD31mc[U+009B]",
	} {
		if got := console.Paint(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

var known = regexp.MustCompile(`^term-(fg[1-59]|fg3[0-7]|fgi9[0-7]|bg4[0-7]|bgi10[0-7])$`)

func FuzzPaint(f *testing.F) {
	for _, s := range []string{
		"plain", "\x1b[31;1mred\x1b[0m", "\x1b[38;5;200;48;2;1;2;3mx", "\x1b]8;;http://x\x07l\x1b]8;;\x07", "<script>alert(1)</script>",
		"\x1b[31m<img src=x onerror=alert(1)>", "\x1b_bk;t=1\x07", "\x1b]1338;url='a'\x07", "\x1b(B\x1b[m\x1b", "a\rb\x00\u202e\xff", "\x1b[999999999999999999999m",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		painted := console.Paint(s)
		nodes, err := html.ParseFragment(strings.NewReader(painted), &html.Node{Type: html.ElementNode, Data: "span", DataAtom: atom.Span})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		var walk func(*html.Node)
		walk = func(n *html.Node) {
			switch {
			case n.Type == html.TextNode:
				text.WriteString(n.Data)
			case n.Type != html.ElementNode || n.Data != "span" || len(n.Attr) != 1 || n.Attr[0].Key != "class":
				t.Fatalf("%q became %q, which has %+v", s, painted, n)
			default:
				for _, class := range strings.Fields(n.Attr[0].Val) {
					if !known.MatchString(class) {
						t.Fatalf("%q became %q, with the class %q", s, painted, class)
					}
				}
			}
			for c := n.FirstChild; c != nil; c = c.NextSibling {
				walk(c)
			}
		}
		for _, n := range nodes {
			walk(n)
		}
		if got, want := strings.TrimRight(text.String(), " \t"), strings.TrimRight(console.Plain(s), " \t"); got != want {
			t.Fatalf("%q became %q, whose text is %q, want %q", s, painted, got, want)
		}
	})
}
