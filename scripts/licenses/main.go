// Command licenses writes the licenses of everything foreign that ships into THIRD_PARTY_LICENSES.txt.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/scripts/licenses/thirdparty"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	if err := run(context.Background(), *root); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) error {
	texts, err := thirdparty.Collect(ctx, root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, thirdparty.File), []byte(thirdparty.Format(texts)), 0o644) //nolint:gosec // it is for everybody
}
