package console_test

import (
	"os"
	"strings"
	"testing"
)

func TestAssets_AreSmallAndLoadNothingFromElsewhere(t *testing.T) {
	for name, most := range map[string]int{"app.js": 10_000, "style.css": 20_000} {
		b, err := os.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > most {
			t.Errorf("%s has %d bytes, at most %d are wanted", name, len(b), most)
		}
		for _, bad := range []string{"innerHTML", "eval(", "import(", "@import", "http:", "https:", "url("} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}
