package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The bounds of a pack. The large hosts take files of up to 100 MiB.
const (
	maxObjects = 1_000_000
	maxObject  = 100 << 20 // bytes of one object, once it is inflated
	// heldObjects is how many of the largest objects a chain of deltas may have in memory: to make one of it, go-git
	// holds all those before it, which may be 4095.
	heldObjects = 3
	// smallObject is the fraction of the largest object from which on a delta of an unknown chain counts.
	smallObject = 1600
)

// pack fetches objects, with their history or without.
func (f *fetcher) pack(ctx context.Context, session remote, adv *packp.AdvRefs, wants []plumbing.Hash, shallow bool) error {
	req := packp.NewUploadPackRequestFromCapabilities(adv.Capabilities)
	req.Wants = wants
	if shallow && adv.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return fmt.Errorf("ask for objects: %w", err)
		}
	}
	response, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = response.Close() }()
	var objects io.Reader = response
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		objects = sideband.NewDemuxer(sideband.Sideband64k, response)
	case req.Capabilities.Supports(capability.Sideband):
		objects = sideband.NewDemuxer(sideband.Sideband, response)
	}
	return f.store(ctx, objects)
}

// store takes a pack in. It lies on disk and is weighed before it is indexed: to do that, go-git holds whole objects in
// memory, however small they are in the pack.
func (f *fetcher) store(ctx context.Context, pack io.Reader) error {
	file, err := os.CreateTemp(f.temp, "pack-")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	if _, err := io.Copy(file, pack); err != nil {
		return err
	}
	if err := weigh(ctx, file, maxObjects, maxObject); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	return packfile.UpdateObjectStorage(f.objects, file)
}

// weigh refuses a pack of more objects than limit, one with an object that would have more bytes than largest, and
// one with a chain of deltas that together have more than heldObjects times that. It inflates as a stream, and of an
// object not more than the size that the pack declares.
func weigh(ctx context.Context, pack io.ReadSeeker, limit uint32, largest int64) error {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	scan := packfile.NewScanner(pack)
	_, count, err := scan.Header()
	if errors.Is(err, packfile.ErrEmptyPackfile) {
		return nil // the wanted objects will be missing
	}
	if err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	if count > limit {
		return workflow.Refuse(workflow.ErrTooLarge, "source.git", "the repository sends %d objects, and a runner takes %d: name a branch or tag in ref, which is fetched without its history", count, limit)
	}
	held := chains{minSize: largest / smallObject}
	for range count {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		header, err := scan.NextObjectHeader()
		if err != nil {
			return fmt.Errorf("read pack: %w", err)
		}
		size := header.Length
		var begin deltaHead
		if size <= largest {
			if _, _, err := scan.NextObject(&begin); err != nil {
				return fmt.Errorf("read pack: %w", err)
			}
			if header.Type.IsDelta() {
				base, result := begin.deltaSizes()
				if size = max(base, result); min(base, result) < 0 {
					size = -1
				}
			}
		}
		if size < 0 || size > largest {
			return workflow.Refuse(workflow.ErrTooLarge, "source.git", "the repository has an object of %d MiB, and a runner takes up to %d MiB: keep large files elsewhere", uint64(size)>>20, largest>>20) //nolint:gosec // a negative size is a huge one
		}
		if sum := held.add(header, size); sum > heldObjects*largest {
			return workflow.Refuse(workflow.ErrTooLarge, "source.git", "the repository has large objects that are changes of one another, %d MiB in all, and a runner holds up to %d MiB of such: name a branch or tag in ref, which is fetched without its history, or keep large files elsewhere", sum>>20, heldObjects*largest>>20)
		}
	}
	return nil
}

// chains adds up the sizes of deltas and of their bases.
type chains struct {
	at, sums []int64 // of each object so far: its offset in the pack, and how many bytes are held to make it
	named    int64   // those of all deltas that name their base by its hash, which may be one chain
	minSize  int64   // minimal bytes of one of these that counts
}

// add returns how many bytes are held to make an object of a size.
func (c *chains) add(h *packfile.ObjectHeader, size int64) int64 {
	switch h.Type {
	case plumbing.OFSDeltaObject:
		if i, ok := slices.BinarySearch(c.at, h.OffsetReference); ok {
			size += c.sums[i]
		}
	case plumbing.REFDeltaObject:
		if size >= c.minSize {
			c.named += size
			size = c.named
		}
	default:
	}
	c.at, c.sums = append(c.at, h.Offset), append(c.sums, size)
	return size
}

// deltaHead keeps the beginning of a stream.
type deltaHead struct {
	b [20]byte
	n int
}

// Write implements io.Writer.
func (h *deltaHead) Write(p []byte) (int, error) {
	h.n += copy(h.b[h.n:], p)
	return len(p), nil
}

// deltaSizes are the sizes of the base and of the result of a delta, as gitformat-pack describes them: seven bits in
// a byte, the lowest first.
func (h *deltaHead) deltaSizes() (base, result int64) {
	rest := h.b[:h.n]
	next := func() (n int64) {
		for shift := 0; len(rest) > 0; shift += 7 {
			c := rest[0]
			rest = rest[1:]
			if shift < 63 {
				n |= int64(c&0x7f) << shift
			} else if c&0x7f != 0 {
				n = -1 // beyond the maximum of an object
			}
			if c < 0x80 {
				break
			}
		}
		return n
	}
	base = next()
	return base, next()
}
