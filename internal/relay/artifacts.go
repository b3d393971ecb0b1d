package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/strict"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Places is where the bytes of a pool's artifacts lie. A request that it returns without a URL is one to this relay,
// which then needs Bytes.
type Places interface {
	// Place says where that is. The control plane adds the pool and the instance.
	Place() api.Place
	// Upload returns the request that places an artifact under a key, and Download the one that gets it.
	Upload(ctx context.Context, key string, a api.NewArtifact) (api.Transfer, error)
	Download(ctx context.Context, key string, a api.Artifact) (api.Transfer, error)
}

// Bytes is a place on this machine: the bytes of its artifacts go through the relay.
type Bytes interface {
	// Keep writes bytes that have the size and the SHA-256 of an artifact, and refuses others. It replaces nothing.
	Keep(key string, a api.Artifact, body io.Reader) error
	Open(key string) (*os.File, error)
}

const (
	grantTime   = 10 * time.Minute // for which bytes may come after their announcement
	maxGrants   = 10_000           // announcements that are remembered at once
	minSpeed    = 256 << 10        // bytes of an artifact in a second, below which its transfer is cut off
	minTransfer = 30 * time.Second // that a transfer may take, however small
	callBytes   = "bytes"
)

// grants remembers which bytes may be transferred, and under which key. After a restart they are announced again.
type grants struct {
	mu  sync.Mutex
	all map[granted]grant
}

// granted is an artifact that an attempt announced, or its input: that has no name.
type granted struct {
	job     string
	attempt int
	name    string
}

type grant struct {
	key      string
	artifact api.Artifact
	until    time.Time
}

func (g *grants) add(to granted, key string, a api.Artifact, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.all) >= maxGrants {
		maps.DeleteFunc(g.all, func(_ granted, one grant) bool { return now.After(one.until) })
	}
	if len(g.all) >= maxGrants {
		return &workflow.Error{Kind: workflow.ErrBusy, Message: "the relay waits for too many artifacts; try again", RetryAfter: retryAfter}
	}
	if g.all == nil {
		g.all = map[granted]grant{}
	}
	g.all[to] = grant{key, a, now.Add(grantTime)}
	return nil
}

func (g *grants) find(to granted, now time.Time) (grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one, ok := g.all[to]
	if !ok || now.After(one.until) {
		return one, &workflow.Error{Kind: workflow.ErrBusy, Message: "the relay does not know of this artifact, or no longer: announce it, or ask for the input, again"}
	}
	return one, nil
}

func (g *grants) end(to granted) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, to)
}

// checkPlaces returns an error if this relay has no place for artifacts.
func (r *Relay) checkPlaces() error {
	if r.cfg.Places == nil {
		return workflow.Refuse(workflow.ErrUnsupported, "", "the relay of this pool has no place for artifacts: give it one, such as the bucket of the pool's stack")
	}
	return nil
}

// artifacts forwards an announcement with the place, and adds where the bytes are to go. Their keys come from the
// ticket and never from the runner.
func (r *Relay) artifacts(ctx context.Context, c call) answer {
	if err := r.checkPlaces(); err != nil {
		return refusal(err)
	}
	var body map[string]json.RawMessage
	if err := strict.Unmarshal(c.body, &body); err != nil || body == nil {
		return refusal(workflow.Refuse(workflow.ErrInvalid, "", "the announcement is not a JSON object in which each member stands once"))
	}
	body["place"], _ = json.Marshal(r.cfg.Places.Place()) // of strings: it cannot fail
	c.body, _ = json.Marshal(body)                        // nor can this: it was JSON before
	a := r.forward(ctx, c, r.cfg.Forward)
	var taken api.ArtifactsTaken
	if !a.ok() || json.Unmarshal(a.body, &taken) != nil || len(taken.Artifacts) == 0 {
		return a
	}
	uploads := make([]api.Transfer, len(taken.Artifacts))
	for i, one := range taken.Artifacts {
		key := api.ArtifactKey(c.claims.Organization, c.claims.WorkspaceID, c.job, c.claims.Attempt, one.Name)
		if api.CheckArtifactName(one.Name) != nil || one.Place.Key != key {
			return refusal(workflow.Refuse(workflow.ErrConflict, "name", "the control plane recorded the artifact under another key than that of the ticket"))
		}
		t, err := r.cfg.Places.Upload(ctx, key, api.NewArtifact{Name: one.Name, Kind: one.Kind, Size: one.Size, SHA256: one.SHA256})
		if err == nil && t.URL == "" {
			t.URL = ownPath(c)
			err = r.grants.add(granted{c.job, c.claims.Attempt, one.Name}, key, one, r.cfg.Now())
		}
		if err != nil {
			return r.unplaced(c, err)
		}
		uploads[i] = t
	}
	return a.with("uploads", uploads)
}

// input forwards the question for the artifact that a run is to use, and adds where its bytes are. It refuses bytes
// of another workspace than the ticket's, even if the control plane names them, except the outputs that a run gets
// from other workspaces of the ticket's organization.
func (r *Relay) input(ctx context.Context, c call) answer {
	if err := r.checkPlaces(); err != nil {
		return refusal(err)
	}
	a := r.forward(ctx, c, r.cfg.Forward)
	var in api.Input
	if !a.ok() || json.Unmarshal(a.body, &in) != nil {
		return a
	}
	place, own := in.Artifact.Place, r.cfg.Places.Place()
	switch {
	case c.header.Get(api.HeaderInput) != "":
		if in.Artifact.Kind != api.ArtifactOutputs || !isOutputs(place.Key, c.claims.Organization) {
			return refusal(workflow.Refuse(workflow.ErrConflict, "", "the input of this run is not the outputs of another workspace of its organization"))
		}
	case !strings.HasPrefix(place.Key, api.ArtifactsOf(c.claims.Organization, c.claims.WorkspaceID)) || path.Clean(place.Key) != place.Key:
		return refusal(workflow.Refuse(workflow.ErrConflict, "", "the input of this run belongs to another workspace than its ticket"))
	}
	// A state that a person uploaded for a push has no kind: it lies where this pool keeps its artifacts.
	if place.Kind != "" && (place.Kind != own.Kind || place.Bucket != own.Bucket) {
		return refusal(workflow.Refuse(workflow.ErrConflict, "", "the input of this run lies in another place than where this pool keeps artifacts: %s. Outputs that one workspace gives to another must be in a place that the pools of both use", cmp.Or(place.Bucket, place.Instance, place.Kind)))
	}
	t, err := r.cfg.Places.Download(ctx, place.Key, in.Artifact)
	if err == nil && t.URL == "" {
		t.URL = ownPath(c)
		err = r.grants.add(granted{c.job, c.claims.Attempt, ""}, place.Key, in.Artifact, r.cfg.Now())
	}
	if err != nil {
		return r.unplaced(c, err)
	}
	return a.with("download", t)
}

// isOutputs says whether a key is that of the outputs of a run of an organization.
func isOutputs(key, org string) bool {
	rest, ofOrg := strings.CutPrefix(key, api.ArtifactsOf(org, ""))
	parts := strings.SplitN(rest, "/", 4) // workspace, workflow, attempt, name
	return ofOrg && len(parts) == 4 && strings.HasPrefix(parts[0], "ws_") && parts[3] == api.OutputsName && path.Clean(key) == key
}

func ownPath(c call) string { return "/v1/jobs/" + c.job + "/" + callBytes }

// unplaced is the answer when a place fails. Its own refusal goes to the runner, and any other error to the log.
func (r *Relay) unplaced(c call, err error) answer {
	if _, said := errors.AsType[*workflow.Error](err); said {
		return refusal(err)
	}
	r.cfg.Log.Warn("artifact not placed or fetched", "job_id", c.job, "attempt", c.claims.Attempt, "call", c.name, "err", err)
	return away("the bytes of the artifact could not be kept or read here")
}

// bytes takes or sends the bytes of an artifact. They are streamed, within a time that goes by their number: the limits
// of the server are for the other calls, which are small.
func (r *Relay) bytes(w http.ResponseWriter, req *http.Request, c call) (status int) {
	place, here := r.cfg.Places.(Bytes)
	if !here {
		a := refusal(workflow.Refuse(workflow.ErrUnsupported, "", "the bytes of artifacts do not go through this relay"))
		write(w, a)
		return a.status
	}
	put := req.Method == http.MethodPut
	to := granted{job: c.job, attempt: c.claims.Attempt}
	if put {
		to.name = cmp.Or(req.Header.Get(api.HeaderArtifact), "?") // no artifact has that name
	}
	one, err := r.grants.find(to, r.cfg.Now())
	if err == nil {
		limit := time.Now().Add(minTransfer + time.Duration(one.artifact.Size/minSpeed)*time.Second)
		on := http.NewResponseController(w)
		_, _ = on.SetReadDeadline(limit), on.SetWriteDeadline(limit) // a writer without deadlines has none that ends it
		if !put {
			return r.sendBytes(w, c, place, one)
		}
		if req.ContentLength >= 0 && req.ContentLength != one.artifact.Size {
			err = workflow.Refuse(workflow.ErrInvalid, "size", "the artifact was announced with %d bytes, not %d", one.artifact.Size, req.ContentLength)
		} else {
			err = place.Keep(one.key, one.artifact, req.Body)
		}
	}
	a := answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: []byte("{}")}
	if err != nil {
		a = r.unplaced(c, err)
	} else {
		r.grants.end(to)
	}
	write(w, a)
	return a.status
}

// sendBytes sends the input of a run. One that is cut short is noticed by its length.
func (r *Relay) sendBytes(w http.ResponseWriter, c call, place Bytes, one grant) (status int) {
	f, err := place.Open(one.key)
	if err != nil {
		a := r.unplaced(c, err)
		write(w, a)
		return a.status
	}
	defer f.Close() //nolint:errcheck // it was only read
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(one.artifact.Size, 10))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, io.LimitReader(f, one.artifact.Size)) // the runner is gone: it asks again
	return http.StatusOK
}
