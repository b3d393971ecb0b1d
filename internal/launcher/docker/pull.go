package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pullTime bounds a pull.
const pullTime = 5 * time.Minute

// pull has the engine fetch the newest image of a name. Where that fails, an image that is there is used: a registry
// that is away must not stop jobs that can run without it.
func (l *Launcher) pull(ctx context.Context, image string) error {
	if !slices.Contains(l.config.Pull, image) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	err := l.engine.pull(ctx, image)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("pull image %s: %w", image, err)
	if there := l.engine.call(ctx, http.MethodGet, "/images/"+image+"/json", nil, nil, nil); there != nil {
		return err
	}
	l.Log.Warn("image not pulled; the one that is there is used", "image", image, "err", err)
	return nil
}

// pull sends no credentials: an image of a private registry is one that the engine has already.
func (e *engine) pull(ctx context.Context, image string) error {
	if !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") && !strings.Contains(image, "@") {
		image += ":latest" // without a tag, the engine would fetch all of them
	}
	response, err := e.open(ctx, http.MethodPost, "/images/create", url.Values{"fromImage": {image}}, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return follow(response.Body, e.socket)
}

// follow reads the engine's progress messages of a long operation, to its end.
func follow(body io.Reader, socket string) error {
	said := json.NewDecoder(body)
	for {
		var line struct {
			Error string `json:"error"`
		}
		err := said.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w at %s: %w", errUnreachable, socket, err)
		case line.Error != "":
			return errors.New(line.Error)
		}
	}
}

// hostPath is the path of a directory as the engine sees it.
func (c *Config) hostPath(dir string) string {
	rest, below := strings.CutPrefix(dir, c.Data+"/")
	if c.HostData == "" || !below {
		return dir
	}
	return filepath.Join(c.HostData, rest)
}
