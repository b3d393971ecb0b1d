package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxAnnounce = 20 // artifacts in one call

	// lentFor is for how long uploads begin after one announcement. A relay takes them a little longer.
	lentFor = 3 * time.Minute

	maxTransfer  = 10 * time.Minute // of trying one announcement with its uploads, or one download
	maxConflicts = 5                // refusals that may be lost races
)

var errSlow = errors.New("it was tried for too long")

// outgoing is an artifact that is to be placed. Its body is read from its beginning at each try.
type outgoing struct {
	api.NewArtifact
	body io.ReadSeeker
}

// EndProcesses implements engine.Host. Every command has been waited for with all processes of its group, so only
// processes that left their group can be alive. They are found if this process adopts orphans, as it does in every
// task on Linux. Then no process of the job remains, unless another program of the machine started it for the job: in
// process isolation without root, code that shares the agent's user can have a cron or a user's service manager do
// that. If this process adopts no orphans, nothing is proven about processes that left their group.
func (h *host) EndProcesses(ctx context.Context) error {
	if !h.r.cfg.Orphans {
		return ctx.Err()
	}
	h.r.processes.Lock()
	defer h.r.processes.Unlock()
	if n := len(h.r.pids); n > 0 { // EndOrphans would end them and take their exit codes
		return fmt.Errorf("processes of the job cannot be ended: %d of its commands still run", n)
	}
	return child.EndOrphans(ctx)
}

// Keep implements engine.Host.
func (h *host) Keep(ctx context.Context, name, kind string, from io.ReadSeeker) (int64, string, error) {
	size, sum, err := digest(from)
	if err == nil {
		err = h.r.place(ctx, []outgoing{{api.NewArtifact{Name: name, Kind: kind, Size: size, SHA256: sum}, from}})
	}
	if err != nil {
		return 0, "", failure(workflow.ReasonArtifactFailed, fmt.Errorf("the artifact %s cannot be kept: %w", name, err))
	}
	return size, sum, nil
}

// WhoseStates implements engine.Host. Nothing is changed before the control plane has answered, so it is asked as long as the run
// may take.
func (h *host) WhoseStates(ctx context.Context, states []api.StateRef) (others []api.OthersState, err error) {
	for some := range slices.Chunk(states, api.MaxStates) {
		var got api.WhoseStates
		err := h.r.persist(ctx, "states", func(ctx context.Context) (_ api.Control, err error) {
			got, err = h.r.cfg.Relay.WhoseStates(ctx, api.StateRefs{States: some})
			return got.Control, err
		})
		if err != nil {
			return nil, failure(workflow.ReasonRunnerError, fmt.Errorf("ask for the owner of the state: %w", err))
		}
		others = append(others, got.Others...)
	}
	return others, nil
}

// digest reads a file from its beginning to its end, or to the bound of an artifact.
func digest(from io.ReadSeeker) (size int64, sum string, err error) {
	if _, err = from.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	if size, err = io.Copy(hash, io.LimitReader(from, api.MaxArtifactSize+1)); err == nil && size > api.MaxArtifactSize {
		err = fmt.Errorf("it has more than %d MiB", api.MaxArtifactSize>>20)
	}
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// place announces artifacts, sends their bytes and reports them as placed, with the next announcement or alone. After
// a transient error it announces the remaining ones again, because the URLs of a relay are valid for minutes only.
//
// An error never means that the run is over, even if it says so: the next heartbeat finds out.
func (r *run) place(ctx context.Context, remaining []outgoing) error {
	var placed []string // not reported yet
	for len(remaining) > 0 || len(placed) > 0 {
		err := r.transfer(ctx, "artifacts", func(ctx context.Context) (api.Control, error) {
			batch := remaining[:min(len(remaining), maxAnnounce)]
			in := api.NewArtifacts{Placed: placed}
			for _, a := range batch {
				in.Artifacts = append(in.Artifacts, a.NewArtifact)
			}
			sent := r.clock()
			taken, err := r.cfg.Relay.Artifacts(ctx, in)
			if err != nil {
				return api.Control{}, err
			}
			if placed = nil; len(taken.Uploads) != len(batch) {
				return api.Control{}, fmt.Errorf("the relay gives %d places for %d artifacts", len(taken.Uploads), len(batch))
			}
			for i, a := range batch {
				if i > 0 && r.clock()-sent > lentFor {
					break
				}
				if _, err := a.body.Seek(0, io.SeekStart); err != nil {
					return api.Control{}, err
				}
				if err := r.cfg.Relay.Upload(ctx, taken.Uploads[i], a.Name, a.Size, a.body); err != nil {
					return api.Control{}, fmt.Errorf("send %s: %w", a.Name, err)
				}
				remaining, placed = remaining[1:], append(placed, a.Name)
				r.kept, r.keptBytes = r.kept+1, r.keptBytes+a.Size
			}
			return taken.Control, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// transfer is persist for calls that transfer bytes, within bounds: a place that refuses them, as a bucket may,
// answers the same as one that is unavailable.
func (r *run) transfer(ctx context.Context, name string, call func(context.Context) (api.Control, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTransfer, errSlow)
	defer cancel()
	var last error
	conflicts := 0
	err := r.persist(ctx, name, func(ctx context.Context) (api.Control, error) {
		control, err := call(ctx)
		if errors.Is(err, workflow.ErrConflict) {
			if conflicts++; conflicts == maxConflicts {
				err = errors.New(err.Error()) // it was no race
			}
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return control, err
	})
	if errors.Is(err, errSlow) && last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// Input implements engine.Host. Nothing is written before the whole artifact is here and has the digest of the spec.
func (h *host) Input(ctx context.Context, to io.Writer) error {
	err := h.r.input(ctx, h.spec, to)
	if err != nil {
		err = failure(workflow.ReasonArtifactFailed, fmt.Errorf("the artifact that the run uses cannot be fetched: %w", err))
	}
	return err
}

// inputOf returns the size and the SHA-256 of the artifact that a run uses.
func inputOf(spec api.Spec) (size int64, sum string, err error) {
	switch {
	case spec.Plan != nil:
		size, sum = spec.Plan.Size, spec.Plan.SHA256
	case spec.Push != nil:
		size, sum = spec.Push.Size, spec.Push.SHA256
	default:
		return 0, "", errors.New("the run names no plan and no state")
	}
	if size > api.MaxArtifactSize {
		return 0, "", fmt.Errorf("it has %d bytes; at most %d are taken", size, int64(api.MaxArtifactSize))
	}
	return size, sum, nil
}

func (r *run) input(ctx context.Context, spec api.Spec, to io.Writer) error {
	size, sum, err := inputOf(spec)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(r.dirs.work, "input-")
	if err != nil {
		return err
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	err = r.transfer(ctx, "input", func(ctx context.Context) (api.Control, error) {
		in, err := r.cfg.Relay.Input(ctx)
		if err != nil {
			return api.Control{}, err
		}
		if in.Download == nil || in.Artifact.Size != size || in.Artifact.SHA256 != sum {
			return in.Control, fmt.Errorf("the relay has another artifact, of %d bytes with the SHA-256 %.64s", in.Artifact.Size, in.Artifact.SHA256)
		}
		if _, err = file.Seek(0, io.SeekStart); err == nil {
			err = file.Truncate(0)
		}
		if err == nil {
			err = r.cfg.Relay.Download(ctx, *in.Download, file, size)
		}
		return in.Control, err
	})
	if err != nil {
		return err
	}
	if got, has, err := digest(file); err != nil || got != size || has != sum {
		return errors.Join(fmt.Errorf("%d bytes with the SHA-256 %s arrived, and not %d bytes with %s: they were replaced; nothing of them was used", got, has, size, sum), err)
	}
	if _, err = file.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(to, file)
	}
	return err
}
