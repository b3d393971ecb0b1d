package thirdparty_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/scripts/licenses/thirdparty"
)

func files(names ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for _, name := range names {
		fs[name] = &fstest.MapFile{Data: []byte("text of " + name)}
	}
	return fs
}

// A directory's license counts where something at it or below it is linked.
func TestFind_LicensesOnTheWayToLinkedPackages(t *testing.T) {
	module := files("LICENSE", "NOTICE.txt", "license.go", "main.go", "a/COPYING", "a/b/PATENTS", "a/b/c.go", "other/LICENSE", "LICENSES/MIT.txt")
	got, err := thirdparty.Find("m v1", module, "a/b", ".")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, text := range got {
		found = append(found, text.File)
		if text.Of != "m v1" || text.Content != "text of "+text.File {
			t.Errorf("got %+v", text)
		}
	}
	if diff := cmp.Diff([]string{"LICENSE", "NOTICE.txt", "a/COPYING", "a/b/PATENTS"}, found); diff != "" {
		t.Error(diff)
	}
}

func TestFind_NamesAModuleWithoutALicense(t *testing.T) {
	_, err := thirdparty.Find("m v1", files("NOTICE", "a/a.go", "other/LICENSE"), "a")
	if err == nil || !strings.Contains(err.Error(), "m v1") {
		t.Errorf("got %v, want an error that names the module", err)
	}
}

// The order of the texts is not in the file, and two that differ in the ends of lines only stand there once.
func TestFormat_EqualTextsStandOnce(t *testing.T) {
	texts := []thirdparty.Text{
		{Of: "b v1", File: "LICENSE", Content: "one\r\n two \r\n"}, {Of: "a v2", File: "COPYING", Content: "\none\n two"}, {Of: "a v2", File: "NOTICE", Content: "other\n"},
	}
	got := thirdparty.Format(texts)
	_, sections, _ := strings.Cut(got, "LICENSE.\n")
	double, single := strings.Repeat("=", 80), strings.Repeat("-", 80)
	want := "\n" + double + "\na v2: COPYING\nb v1: LICENSE\n" + single + "\none\n two\n" +
		"\n" + double + "\na v2: NOTICE\n" + single + "\nother\n"
	if diff := cmp.Diff(want, sections); diff != "" {
		t.Error(diff)
	}
	texts[0], texts[2] = texts[2], texts[0]
	if again := thirdparty.Format(texts); again != got {
		t.Errorf("in another order it is\n%s", again)
	}
}
