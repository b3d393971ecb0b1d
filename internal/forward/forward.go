// Package forward sends sealed parts of the audit trail to a place that the control plane cannot change later: a file,
// a syslog, or a bucket of S3. Each part is its entries and then its seal, as lines of JSON (api.AuditLine). A part may
// be sent again. It does not choose the parts, and keeps no position: see controlplane.
package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// putter stores objects that are written once.
type putter interface {
	Put(ctx context.Context, name string, body []byte) error
}

// Place is where the trail is forwarded to.
type Place struct {
	name string
	send func(ctx context.Context, organization string, lines [][]byte, seal api.Seal) error
}

// Place names the place.
func (p *Place) Place() string { return p.name }

// Forward sends one part of the trail.
func (p *Place) Forward(ctx context.Context, organization string, entries []api.AuditEvent, seal api.Seal) error {
	var lines [][]byte
	add := func(l api.AuditLine) error {
		l.Organization = organization
		line, err := json.Marshal(l)
		lines = append(lines, append(line, '\n'))
		return err
	}
	for _, e := range entries {
		if err := add(api.AuditLine{Entry: &e}); err != nil {
			return fmt.Errorf("encode an entry: %w", err)
		}
	}
	if err := add(api.AuditLine{Seal: &seal}); err != nil {
		return fmt.Errorf("encode a seal: %w", err)
	}
	return p.send(ctx, organization, lines, seal)
}

// To returns the place that an address names; field is the setting that has it. A bucket is opened by its name; nil
// means that there are none here. It makes no call.
func To[P putter](field, address string, bucket func(name string) (P, error)) (*Place, error) {
	u, err := url.Parse(address)
	wrong := func(format string, args ...any) (*Place, error) {
		return nil, workflow.Refuse(workflow.ErrInvalid, field, format, args...)
	}
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return wrong("want file:///PATH, syslog+tls://HOST:PORT or s3://BUCKET/PREFIX, without user, password and parameters")
	}
	p := &Place{name: u.String()}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) || strings.HasSuffix(u.Path, "/") {
			return wrong("want file:// and the absolute path of a file, such as file:///var/log/dayfly-audit.jsonl, not %q", address)
		}
		p.send = file(u.Path).send
	case "syslog+tcp", "syslog+tls", "syslog+udp":
		if u.Port() == "" || u.Hostname() == "" || u.Path != "" {
			return wrong("want %s://HOST:PORT, not %q", u.Scheme, address)
		}
		p.send = syslog{network: strings.TrimPrefix(u.Scheme, "syslog+"), address: u.Host}.send
	case "syslog+unix":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return wrong("want syslog+unix:// and the absolute path of a socket, such as syslog+unix:///dev/log, not %q", address)
		}
		p.send = syslog{network: "unix", address: u.Path}.send
	case "s3":
		if bucket == nil || u.Host == "" || u.Port() != "" {
			return wrong("want s3://BUCKET/PREFIX, in a control plane on AWS, not %q", address)
		}
		to, err := bucket(u.Host)
		if err != nil {
			return nil, err
		}
		prefix := strings.Trim(u.Path, "/")
		p.send = func(ctx context.Context, organization string, lines [][]byte, seal api.Seal) error {
			name := fmt.Sprintf("%s/%012d", organization, seal.Number)
			if prefix != "" {
				name = prefix + "/" + name
			}
			return to.Put(ctx, name, bytes.Join(lines, nil))
		}
	default:
		return wrong("want file:///PATH, syslog+tcp://, syslog+tls:// or syslog+udp://HOST:PORT, syslog+unix:///PATH or s3://BUCKET/PREFIX, not %q", address)
	}
	return p, nil
}
