// Command functions builds every Lambda function of this module into dist/functions, as
// NAME/bootstrap and NAME.zip, and prints what came of it. With -only it builds one, without a zip.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "functions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var cfg bootstrap.Config
	flags := flag.NewFlagSet("functions", flag.ContinueOnError)
	flags.StringVar(&cfg.Root, "root", ".", "the root of the module")
	flags.StringVar(&cfg.Out, "out", "", "where to put them; empty means dist/functions under the root")
	flags.StringVar(&cfg.Arch, "arch", "arm64", "what to build for: arm64 or amd64")
	flags.StringVar(&cfg.Version, "version", "", "the version that they tell")
	only := flags.String("only", "", "build only the function of this name; its files go right into -out")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if cfg.Out == "" {
		cfg.Out = filepath.Join(cfg.Root, "dist", "functions")
	}
	packages, err := bootstrap.Functions(cfg.Root)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errors.New("there is no functions/NAME/main.go to build")
	}
	if *only != "" {
		cfg.Flat, cfg.NoZip = true, true
		packages = []string{"./functions/" + *only}
	}
	built, err := bootstrap.Build(ctx, cfg, packages...)
	if err != nil || cfg.NoZip {
		return err
	}
	for _, a := range built {
		info, err := os.Stat(a.Zip)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-14s %5.2f MB  %s\n", a.Name, float64(info.Size())/1e6, a.Zip)
	}
	return nil
}
