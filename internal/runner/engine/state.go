package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// overrideName ends in _override.tf.json, so that the engine takes its backend in place of the
	// one that the code declares.
	overrideName   = "dayfly_backend_override.tf.json"
	stateName      = "terraform.tfstate"
	workspacesName = "terraform.tfstate.d"
	lockInfoName   = ".terraform.tfstate.lock.info"

	// Where the local backend finds the state of a run, below the root module. It is the same in every job, because
	// a plan file carries its backend: an absolute path would be that of another task, long gone.
	localDir = ".dayfly/state"
)

// declared is where the code itself says that its state is kept.
type declared struct {
	backend string // type of the backend block; empty means none
	path    string // of the backend local, if the code has it as a literal
	cloud   bool   // a cloud block says it instead
	unsure  bool   // something could not be read
}

// elsewhere says whether the code keeps its state outside the task, where it survives.
func (d declared) elsewhere() bool { return d.cloud || d.backend != "" && d.backend != "local" }

// name is the type of the backend; empty if there is none, or only a file on the task's own disk.
func (d declared) name() string {
	switch {
	case d.cloud:
		return "cloud"
	case d.backend == "local":
		return ""
	}
	return d.backend
}

// words describes it for a sentence.
func (d declared) words() string {
	switch {
	case d.cloud:
		return "the code has a cloud block"
	case d.backend == "":
		return "the code declares no backend"
	case d.backend == "local":
		return "the code declares the backend local, whose file lies on the task's own disk"
	}
	return "the code declares the backend " + d.backend
}

// readDeclared reads the backend or cloud block of a root module. A file that does not parse is
// left to the engine, which explains better what is wrong with it.
func readDeclared(root, engine string) declared {
	entries, err := os.ReadDir(root)
	if err != nil {
		return declared{unsure: true}
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isConfig(e.Name(), engine) {
			names = append(names, e.Name())
		}
	}
	// Override files have the last word, in the order of their names.
	slices.SortStableFunc(names, func(a, b string) int {
		if x, y := isOverride(a), isOverride(b); x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	var d declared
	for _, name := range names {
		readBackend(filepath.Join(root, name), &d)
	}
	return d
}

func isConfig(name, engine string) bool {
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return false
	}
	if strings.HasSuffix(name, ".tf") || strings.HasSuffix(name, ".tf.json") {
		return true
	}
	return engine == api.EngineTofu && (strings.HasSuffix(name, ".tofu") || strings.HasSuffix(name, ".tofu.json"))
}

func isOverride(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	return base == "override" || strings.HasSuffix(base, "_override")
}

// readBackend reads one file. A later declaration replaces an earlier one.
func readBackend(path string, d *declared) {
	const most = 4 << 20
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > most {
		d.unsure = true
		return
	}
	src, err := os.ReadFile(path)
	if err != nil {
		d.unsure = true
		return
	}
	parseBackend(src, filepath.Base(path), d)
}

func parseBackend(src []byte, name string, d *declared) {
	if strings.HasSuffix(name, ".json") {
		parseBackendJSON(src, d)
		return
	}
	parseBackendHCL(src, name, d)
}

// parseBackendHCL reads tokens, not a syntax tree: the parser of the language follows nested
// expressions on the stack without a bound, and the code of a workspace must not be able to end the
// runner.
func parseBackendHCL(src []byte, name string, d *declared) {
	tokens, diags := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	tokens = slices.DeleteFunc(tokens, func(t hclsyntax.Token) bool { return t.Type == hclsyntax.TokenComment })
	depth := 0
	inside := false // a terraform block at the top
	local := false  // a block of the backend local in it
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
			inside = inside && depth > 0
			local = local && depth > 1
		case hclsyntax.TokenIdent:
			word, label, opens := header(tokens[i:])
			switch {
			case depth == 2 && local && word == "path" && !opens:
				d.path = literal(tokens[i:])
			case !opens || (i > 0 && tokens[i-1].Type != hclsyntax.TokenNewline && tokens[i-1].Type != hclsyntax.TokenOBrace):
			case depth == 0 && word == "terraform" && label == "":
				inside = true
			case depth == 1 && inside && word == "cloud" && label == "":
				*d = declared{cloud: true, unsure: d.unsure}
			case depth == 1 && inside && word == "backend" && label != "":
				*d = declared{backend: label, unsure: d.unsure}
				local = label == "local"
			}
		default: // the rest neither nests nor begins a block
		}
	}
	d.unsure = d.unsure || diags.HasErrors() || depth != 0
}

// literal reads the value of an attribute that is a plain string; any other is empty.
func literal(tokens hclsyntax.Tokens) string {
	form := []hclsyntax.TokenType{hclsyntax.TokenIdent, hclsyntax.TokenEqual, hclsyntax.TokenOQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenCQuote}
	if len(tokens) < len(form) {
		return ""
	}
	for i, want := range form {
		if tokens[i].Type != want {
			return ""
		}
	}
	return string(tokens[3].Bytes)
}

// header reads the head of a block: a word, at most one label, and an opening brace.
func header(tokens hclsyntax.Tokens) (word, label string, opens bool) {
	at := func(i int) hclsyntax.TokenType {
		if i < len(tokens) {
			return tokens[i].Type
		}
		return hclsyntax.TokenEOF
	}
	word = string(tokens[0].Bytes)
	switch at(1) {
	case hclsyntax.TokenOBrace:
		return word, "", true
	case hclsyntax.TokenIdent:
		return word, string(tokens[1].Bytes), at(2) == hclsyntax.TokenOBrace
	case hclsyntax.TokenOQuote:
		if at(2) == hclsyntax.TokenQuotedLit && at(3) == hclsyntax.TokenCQuote {
			return word, string(tokens[2].Bytes), at(4) == hclsyntax.TokenOBrace
		}
	default: // an attribute, or part of an expression
	}
	return word, "", false
}

// parseBackendJSON reads the JSON form, in which each block may also be a list of blocks.
func parseBackendJSON(src []byte, d *declared) {
	var doc any
	if err := json.Unmarshal(src, &doc); err != nil {
		d.unsure = true
		return
	}
	for _, top := range blocks(doc) {
		for _, settings := range blocks(top["terraform"]) {
			if settings["cloud"] != nil {
				*d = declared{cloud: true, unsure: d.unsure}
			}
			for _, backend := range blocks(settings["backend"]) {
				for name := range backend {
					*d = declared{backend: name, unsure: d.unsure}
					for _, inner := range blocks(backend[name]) {
						d.path, _ = inner["path"].(string)
					}
				}
			}
		}
	}
}

func blocks(value any) []map[string]any {
	switch v := value.(type) {
	case map[string]any:
		return []map[string]any{v}
	case []any:
		var all []map[string]any
		for _, item := range v {
			if m, ok := item.(map[string]any); ok {
				all = append(all, m)
			}
		}
		return all
	default:
		return nil
	}
}

func notKept(backend string) error {
	return &Failure{
		Reason: workflow.ReasonStateNotKept,
		Detail: declared{backend: backend}.words() + ", so the state would be lost when the task ends; set the workspace's state to kind directory or s3, or declare a remote backend in the code",
	}
}

// overrideDocument tells the engine where the state is kept.
func overrideDocument(backend string, settings map[string]any) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"terraform": map[string]any{"backend": map[string]any{backend: settings}},
	}, "", "  ")
}

// settings are those of a place that is not the code's, as the type of a backend and what it is told.
func (p place) settings() (backend string, settings map[string]any) {
	if p.kind == api.StateS3 {
		return "s3", s3Settings(p.bucket, p.key)
	}
	return "local", map[string]any{"path": localDir + "/" + stateName, "workspace_dir": localDir + "/" + workspacesName}
}

func s3Settings(s api.State, key string) map[string]any {
	settings := map[string]any{
		"bucket":       s.Bucket,
		"key":          key,
		"encrypt":      true,
		"use_lockfile": true,
	}
	region := s.Region
	if s.Endpoint != "" {
		if region == "" {
			region = "us-east-1" // signs requests; a service that is not AWS's takes any
		}
		settings["endpoints"] = map[string]any{"s3": s.Endpoint}
		settings["use_path_style"] = true
		// What only AWS's own services answer.
		settings["skip_credentials_validation"] = true
		settings["skip_requesting_account_id"] = true
		settings["skip_metadata_api_check"] = true
		settings["skip_region_validation"] = true
	}
	if region != "" {
		settings["region"] = region
	}
	if s.KMSKeyARN != "" {
		settings["kms_key_id"] = s.KMSKeyARN
	}
	return settings
}

// s3Lockfile is the version from which both engines lock with a file in the bucket.
const s3Lockfile = "1.10.0"

func checkS3(engine string, v *version.Version) error {
	if !atLeast(v, s3Lockfile) {
		return &Failure{
			Reason: workflow.ReasonEngineNotFound,
			Detail: fmt.Sprintf("state kind s3 needs %s %s or newer, which locks with a file in the bucket; this runner has %s", engine, s3Lockfile, v),
		}
	}
	return nil
}

// copyWait bounds how long a copy waits for a state that is being written.
const (
	copyWait  = 10 * time.Second
	copyEvery = 100 * time.Millisecond
)

// copyState copies one state of a directory for a run that only reads it. It copies nothing if there is none yet.
// The engine of another run may be writing it at this moment, in place: then what is there is
// not a whole document, or an empty file beside a lock, and the copy is made again.
func copyState(ctx context.Context, stateDir, name string, to *folder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, copyWait, fmt.Errorf("the state is still not a whole document after %s", copyWait))
	defer cancel()
	from, err := openFolder(stateDir, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.close()
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		whole, err := tryCopy(from, name, to)
		if err != nil || whole {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func tryCopy(from *folder, name string, to *folder) (whole bool, err error) {
	in, err := from.open(name) // a link may lead to what the engine must not read
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	defer func() { _ = in.Close() }()
	before, err := in.Stat()
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	if err := to.mkdirs(path.Dir(name)); err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	out, err := to.create(name)
	if err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	defer func() { _ = out.Close() }()
	if before.Size() == 0 {
		_, err := from.root.Lstat(path.Join(path.Dir(name), lockInfoName))
		return errors.Is(err, fs.ErrNotExist), nil
	}
	whole = wholeJSON(io.TeeReader(in, out))
	after, err := in.Stat()
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	whole = whole && after.Size() == before.Size() && after.ModTime().Equal(before.ModTime())
	if err := out.Close(); err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	return whole, nil
}

// wholeJSON reads to the end and reports whether it was exactly one document.
func wholeJSON(r io.Reader) bool {
	dec := json.NewDecoder(r)
	if _, err := skipValue(dec); err != nil {
		return false
	}
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}
