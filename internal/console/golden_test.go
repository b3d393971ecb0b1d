package console_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/test/runtable"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The console's text about a run is as in the golden file.
func TestWords_OfRuns(t *testing.T) {
	runtable.Golden(t, *update, func(r runtable.Run) string {
		parts := console.RenderParts(r.Why, runtable.Now)
		page := rendered(t, parts["page"])
		// A row is none without its table.
		out := []string{"row: " + plain("<table>"+rendered(t, parts["row"])+"</table>"), "title: " + plain(strings.Split(page, "<div data-part")[0])}
		for _, part := range strings.Split(page, " data-part=\"")[1:] {
			name, body, _ := strings.Cut(part, "\"")
			_, body, _ = strings.Cut(body, ">")
			if said := strings.TrimSuffix(plain(body), " <section"); said != "" {
				out = append(out, name+": "+said)
			}
		}
		return strings.Join(out, "\n")
	})
}

func TestWords_OfNodesOfATree(t *testing.T) {
	page := rendered(t, console.RenderTree(runtable.Tree(), "app", runtable.Now))
	runtable.Same(t, *update, "tree.txt", plain(strings.ReplaceAll(page, "<li>", "<li>\n"))+"\n")
}

func rendered(t *testing.T, c templ.Component) string {
	t.Helper()
	var b strings.Builder
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
