package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	stepArtifacts = "artifacts"

	maxPlace     = 5 * time.Minute  // for all files of a job
	placeStopped = 30 * time.Second // for those of a run that was stopped, if its grace has not ended before

	maxEntries  = 10_000 // files and directories that are looked at
	maxMessages = 10     // in the log, about files that are left out
)

// keepFiles places the files that the job wrote to the directory of artifacts, if any. A failure to place them fails
// their step and not the run. Call it when no process of the job remains.
func (r *run) keepFiles(held, life context.Context) {
	c, err := openFiles(r.dirs.work, r.dirs.artifacts)
	if err != nil || c == nil {
		logRemoval(r.log, err)
		return
	}
	defer c.close()
	c.count, c.bytes = r.kept, r.keptBytes
	if r.cfg.Engine != nil {
		c.owner = r.owner().UID
	}
	ctx, give := context.WithCancelCause(held)
	defer give(nil)
	late := func() { give(errors.New("there was no more time for it")) }
	defer time.AfterFunc(maxPlace, late).Stop()
	defer context.AfterFunc(life, func() { time.AfterFunc(min(placeStopped, r.killTime()-r.clock()), late) })()
	_ = (&host{r: r}).step(ctx, stepArtifacts, func(ctx context.Context) (string, error) {
		c.dir(ctx, ".")
		for _, line := range c.messages {
			r.logf("%s", line)
		}
		if more := c.skipped - len(c.messages); more > 0 {
			r.logf("%s more left out of the artifacts", text.Are(more, "file"))
		}
		err := context.Cause(ctx)
		if err == nil {
			err = r.place(ctx, c.found)
		}
		if err != nil {
			err = fmt.Errorf("the files in DAYFLY_ARTIFACTS are not kept, or not all of them: %w", err)
			r.logf("%s", err)
			return "", err
		}
		said := text.Count(len(c.found), "file") + " kept"
		if c.skipped > 0 {
			said += fmt.Sprintf(", %d left out", c.skipped)
		}
		return said, nil
	})
}

// fileCollector collects the files that a job wrote. Their author is hostile: no link is followed, nothing is opened
// that could block, and the file that is placed is the one that was checked.
type fileCollector struct {
	root     *os.Root
	owner    int // user that must own the files; 0 means any
	count    int // artifacts of the run so far
	bytes    int64
	seen     int
	found    []outgoing
	files    []*os.File // the bodies of these
	skipped  int        // number of files left out
	messages []string   // about the first of these
}

// openFiles opens the directory dir in the directory work; nil if there is nothing in it.
func openFiles(work, dir string) (*fileCollector, error) {
	if dir == "" {
		return nil, nil
	}
	above, err := os.OpenRoot(work)
	if err != nil {
		return nil, err
	}
	defer func() { _ = above.Close() }()
	root, err := above.OpenRoot(filepath.Base(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the job removed it
	}
	if err != nil {
		return nil, err
	}
	c := &fileCollector{root: root}
	if top, err := root.Open("."); err == nil {
		names, _ := top.Readdirnames(1)
		_ = top.Close()
		if len(names) > 0 {
			return c, nil
		}
	}
	c.close()
	return nil, nil
}

func (c *fileCollector) close() {
	_ = c.root.Close()
	for _, f := range c.files {
		_ = f.Close()
	}
}

// dir takes the files of a directory and those below it, in the order of their names.
func (c *fileCollector) dir(ctx context.Context, name string) {
	d, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		c.skip(name, err.Error())
		return
	}
	entries, err := d.ReadDir(maxEntries - c.seen + 1)
	_ = d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		c.skip(name, err.Error())
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		if c.seen++; c.seen > maxEntries {
			c.skip(name, fmt.Sprintf("there are more than %d files and directories, and no more are looked at", maxEntries))
			return
		}
		below := path.Join(name, e.Name())
		switch {
		case api.CheckArtifactName(api.FilesDir+below) != nil:
			c.skip(below, fmt.Sprintf("the name of an artifact has at most %d characters of A-Z, a-z, 0-9 and ._@+=,- between slashes", api.MaxArtifactName-len(api.FilesDir)))
		case e.IsDir():
			c.dir(ctx, below)
		case !e.Type().IsRegular():
			c.skip(below, "only regular files are kept")
		case c.count >= api.MaxArtifacts:
			c.skip(below, fmt.Sprintf("a run has at most %d artifacts", api.MaxArtifacts))
		default:
			if why := c.file(below); why != "" {
				c.skip(below, why)
			}
		}
		if c.seen > maxEntries {
			return
		}
	}
}

// file takes one file, or says why not. From when it is opened, only that descriptor is read.
func (c *fileCollector) file(name string) (why string) {
	f, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err.Error()
	}
	defer func() {
		if why != "" {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return "only regular files are kept"
	case st.Nlink != 1:
		return "it has a second name (a hard link)"
	case c.owner != 0 && int(st.Uid) != c.owner:
		return "it does not belong to the user of the job"
	case info.Size() > api.MaxArtifactSize:
		return fmt.Sprintf("it has %d bytes, and an artifact has at most %d MiB", info.Size(), api.MaxArtifactSize>>20)
	case info.Size() > api.MaxArtifactBytes-c.bytes:
		return fmt.Sprintf("the artifacts of a run have at most %d MiB together", api.MaxArtifactBytes>>20)
	}
	size, sum, err := digest(f)
	switch {
	case err != nil:
		return err.Error()
	case size != info.Size():
		return "it changed while it was read"
	}
	c.count, c.bytes = c.count+1, c.bytes+size
	c.files = append(c.files, f)
	c.found = append(c.found, outgoing{api.NewArtifact{Name: api.FilesDir + name, Kind: api.ArtifactFile, Size: size, SHA256: sum}, io.NewSectionReader(f, 0, size)})
	return ""
}

// skip leaves a file out and keeps a message about it.
func (c *fileCollector) skip(name, why string) {
	if c.skipped++; len(c.messages) < maxMessages {
		c.messages = append(c.messages, fmt.Sprintf("left out of the artifacts: %s: %s", text.Quote(name, 200), why))
	}
}
