package setup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/text"
)

type workspaceDiscover struct {
	Dir     string `arg:"" help:"The top of the tree."`
	Out     string `placeholder:"DIR" help:"Write a file for each workspace into this directory, or all to standard output with -. Without it, only the table is printed."`
	Project string `help:"Project of the workspaces."`
	Engine  string `enum:"terraform,tofu" default:"terraform" help:"Engine of code that does not say which: terraform or tofu."`
	GitURL  string `name:"git-url" placeholder:"URL" help:"Repository that has the tree; without it, the workspaces run the directories of this machine."`
	Ref     string `help:"With --git-url: branch, tag or commit."`
	Units   string `name:"terragrunt" enum:"trees,units" default:"trees" help:"One workspace for each tree of units of Terragrunt, such as an environment, or for each unit: trees or units."`
	Force   bool   `help:"Replace files that differ."`

	Include   []string `placeholder:"DIR" help:"Directories that are left out or doubtful, from the top of the tree, or patterns for them such as 'examples/*': take them as root modules."`
	Workspace []string `placeholder:"NAME" help:"Workspaces of the engine, or stacks of Pulumi, where the code leaves the choice: one workspace for each."`
}

// Run finds the workspaces, writes their files and prints a table of them.
func (c *workspaceDiscover) Run(a *cli.App) error {
	if c.Ref != "" && c.GitURL == "" {
		return cli.Usage(errors.New("--ref: goes with --git-url"))
	}
	found, err := discover.Tree(c.Dir, discover.Options{Project: c.Project, Engine: c.Engine, GitURL: c.GitURL, GitRef: c.Ref, Workspaces: c.Workspace, Terragrunt: c.Units, Include: c.Include})
	if err != nil {
		return cli.Usage(err)
	}
	if c.Out != "" {
		if err := c.write(a, found); err != nil {
			return err
		}
	}
	if a.JSON() && c.Out != "-" {
		return a.Encode(found)
	}

	w := a.Stdout
	if c.Out == "-" {
		w = a.Stderr // standard output has the files
	}
	if err := foundTables(w, a.StyleOf(w), found); err != nil {
		return err
	}
	switch {
	case len(found.Workspaces) == 0:
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no root module%s", c.Dir, inDoubt(found, ", but %d doubtful: --include takes them"))}
	case c.Out == "":
		a.Say("nothing was written: --out DIR writes a file for each workspace")
	case c.Out != "-":
		a.Say("see what they would change with dayfly apply -f %s --dry-run", c.Out)
	}
	return nil
}

// write writes all documents, if none of them would replace another file that differs.
func (c *workspaceDiscover) write(a *cli.App, found discover.Found) error {
	if c.Out == "-" {
		return printDocuments(a, found)
	}
	base, err := makeDirectory(c.Out)
	if err != nil {
		return cli.Usage(err)
	}

	files := map[string][]byte{}
	var differ []string
	for _, w := range found.Workspaces {
		doc, err := w.Document(base)
		if err != nil {
			return cli.Usage(err)
		}
		file := filepath.Join(base, w.Name+".yaml")
		old, err := os.ReadFile(file) //nolint:gosec // its name is that of a workspace
		switch {
		case errors.Is(err, fs.ErrNotExist):
			files[file] = doc
		case err != nil:
			return cli.Usage(err)
		case !bytes.Equal(old, doc):
			files[file] = doc
			differ = append(differ, filepath.Base(file))
		}
	}

	if len(differ) > 0 && !c.Force {
		return cli.Usage(fmt.Errorf("%s in %s differ from the discovered settings, such as %s: nothing was written; --force replaces them", text.Count(len(differ), "file"), c.Out, differ[0]))
	}
	for file, doc := range files {
		if err := disk.Replace(file, doc); err != nil {
			return err
		}
	}
	a.Say("%s: %s written, %d unchanged", c.Out, text.Count(len(files), "file"), len(found.Workspaces)-len(files))
	return nil
}

// printDocuments writes all documents to standard output.
func printDocuments(a *cli.App, found discover.Found) error {
	for i, w := range found.Workspaces {
		doc, err := w.Document("")
		if err != nil {
			return cli.Usage(err)
		}
		if i > 0 {
			doc = append([]byte("---\n"), doc...)
		}
		if _, err := a.Stdout.Write(doc); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes a directory, and returns its absolute path without symbolic links.
func makeDirectory(name string) (string, error) {
	if err := os.MkdirAll(name, 0o755); err != nil { //nolint:gosec // everybody who reads the code may read its files
		return "", err
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// foundTables prints the workspaces that were found, the directories that were left out, and the notes.
func foundTables(w io.Writer, style term.Style, found discover.Found) error {
	taken := term.NewTable("WORKSPACE", "DIRECTORY", "ENGINE", "BACKEND", "WHY")
	about := map[string][]string{}
	for _, f := range found.Workspaces {
		taken.Row(f.Name, cli.Dash(f.Dir), f.Engine, cli.Dash(f.Backend), term.Clean(f.Why))
		for _, note := range f.Notes {
			about[note] = append(about[note], f.Name)
		}
	}
	if err := taken.Write(w, style, "no workspaces"); err != nil {
		return err
	}

	if err := leftTables(w, style, found); err != nil {
		return err
	}

	var b strings.Builder
	for _, note := range found.Notes {
		b.WriteString("! " + term.Clean(note) + "\n")
	}
	notes := make([]string, 0, len(about))
	for note := range about {
		notes = append(notes, note)
	}
	slices.SortFunc(notes, func(x, y string) int {
		return cmp.Or(len(about[y])-len(about[x]), strings.Compare(about[x][0], about[y][0]), strings.Compare(x, y))
	})
	for _, note := range notes {
		names := about[note][0]
		if more := len(about[note]) - 1; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		b.WriteString("! " + term.Clean(names+": "+note) + "\n")
	}
	fmt.Fprintf(&b, "%s, %d left out%s\n", text.Count(len(found.Workspaces), "workspace"), len(found.Left), inDoubt(found, ", %d doubtful"))
	_, err := io.WriteString(w, "\n"+b.String())
	return err
}

func inDoubt(found discover.Found, format string) string {
	if len(found.Doubtful) == 0 {
		return ""
	}
	return fmt.Sprintf(format, len(found.Doubtful))
}

// leftTables prints the directories that were not taken and the files that no workspace reads, those with the same
// reason in a line.
func leftTables(w io.Writer, style term.Style, found discover.Found) error {
	for _, group := range []struct {
		title string
		list  []discover.Left
		names int // in a line
	}{{"DOUBTFUL", found.Doubtful, 20}, {"LEFT OUT", found.Left, 5}, {"FILES OF VALUES", found.Files, 20}} {
		if len(group.list) == 0 {
			continue
		}
		table := term.NewTable(group.title, "WHY")
		for _, line := range together(group.list, group.names) {
			table.Row(term.Clean(line.Dir+line.File), term.Clean(line.Why))
		}
		_, _ = fmt.Fprintln(w)
		if err := table.Write(w, style, ""); err != nil {
			return err
		}
	}
	return nil
}

// together puts those with the same reason, but for the names in it, into one line.
func together(list []discover.Left, limit int) (lines []discover.Left) {
	const fromHere = 3 // that few have a line each
	reason := func(l discover.Left) string {
		why, _, _ := strings.Cut(l.Why, ", by ")
		why, _, _ = strings.Cut(why, ", but nothing gives a value to ")
		why, _, _ = strings.Cut(why, ", in ")
		return why
	}
	same := map[string][]string{}
	for _, l := range list {
		same[reason(l)] = append(same[reason(l)], cli.Dash(l.Dir+l.File))
	}
	for _, l := range list {
		switch dirs := same[reason(l)]; {
		case len(dirs) < fromHere:
			lines = append(lines, l)
		case dirs[0] == cli.Dash(l.Dir+l.File):
			lines = append(lines, discover.Left{Dir: fmt.Sprintf("%d: %s", len(dirs), text.Some(dirs, limit)), Why: reason(l)})
		}
	}
	return lines
}

// filesOf are the workspace files that an argument of -f means: those in a directory, not below it.
func filesOf(arg string) ([]string, error) {
	info, err := os.Stat(arg)
	if there := err == nil; arg == "-" || !there || !info.IsDir() {
		return []string{arg}, nil // a missing file is said by its reader
	}
	entries, err := os.ReadDir(arg)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, filepath.Join(arg, name))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no workspace files: want files that end in .yaml, such as %s", arg, workspacefile.Name)
	}
	return files, nil
}
