package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/go-version"
)

// download takes an engine from the cache of the machine, or has it fetched.
func download(ctx context.Context, h Host, j Job, engine string, want version.Constraints) (binary, error) {
	tool, err := j.Tools.Get(ctx, engine, want)
	if err != nil {
		return binary{}, fmt.Errorf("not downloaded: %w", err)
	}
	v, err := says(ctx, h, j, engines()[engine], tool.Path)
	if err == nil && !v.Equal(tool.Version) {
		err = fmt.Errorf("it says that it is %s", v)
	}
	if err != nil {
		return binary{}, fmt.Errorf("the download %s cannot be used: %w", tool.Path, err)
	}
	return binary{path: tool.Path, version: v, digest: tool.Digest}, nil
}

// origin says in the log where a binary came from, if it was not installed.
func (b binary) origin() string {
	if b.digest == "" {
		return ""
	}
	return ", a download whose archive has the SHA-256 " + b.digest
}

// otherVersions are the binaries that were not asked, because their names have versions that do not fit.
func otherVersions(j Job, engine, searchPath string, asked []binary) []string {
	extra := j.EnginePath
	if j.Tools != nil && j.Tools.Dir != "" {
		extra = append(slices.Clip(extra), j.Tools.Dir)
	}
	var out []string
	for _, c := range candidates(engine, extra, searchPath, nil) {
		if c.version != nil && !slices.ContainsFunc(asked, func(a binary) bool { return a.path == c.path }) {
			out = append(out, fmt.Sprintf("%s (%s)", c.path, c.version))
		}
	}
	return out
}
