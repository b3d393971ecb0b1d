package engine

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Code is the content of a module's files, as far as it can be read without an engine.
type Code struct {
	Files     int               // that an engine would read
	Backend   string            // type of the backend block; empty means none
	Settings  map[string]string // of the backend: those that are plain strings
	Computed  []string          // the names of its other settings
	Cloud     bool              // it has a cloud block instead
	Providers []string          // names of the providers that have a block of their own
	Modules   []string          // sources of the modules that it calls: those that are plain strings
	Early     bool              // with tofu, init needs variables: for a backend, or for the source of a module
	Ephemeral bool              // it declares an ephemeral variable, which no plan keeps
	Types     map[string]string // of the variables that declare one: its first word, such as string or list
	Unsure    bool              // something could not be read

	// CloudSettings are those of the cloud block that are plain strings, as hostname and workspaces.name.
	CloudSettings map[string]string
	// ReadsWorkspace says that an expression has the name of the engine's workspace.
	ReadsWorkspace bool

	Variables map[string]bool // that it declares: whether they have a default
	Reads     map[string]bool // the variables that expressions name, declared or not
	Blocks    int             // resources, data and modules
	Required  []string        // of required_version, in the order of the files
	Encrypts  bool            // its state, with a block that only OpenTofu knows
}

// readDeclared reads the backend that a root module declares.
func readDeclared(root, engine string) declared {
	c := ReadCode(os.DirFS(root), ".", engine)
	d := c.declared()
	d.types = c.Types
	d.asks = c.Ephemeral || c.Unsure || engine == api.EngineTofu && c.Early
	return d
}

func (c Code) declared() declared {
	d := declared{backend: c.Backend, cloud: c.Cloud, unsure: c.Unsure, host: c.Settings["hostname"], readsWorkspace: c.ReadsWorkspace}
	if c.Cloud {
		d.host, d.cloudWorkspace = c.CloudSettings["hostname"], c.CloudSettings[cloudWorkspaces+".name"]
	}
	if c.Backend == "local" {
		d.path, d.workspaceDir = c.Settings["path"], c.Settings["workspace_dir"]
		d.computed = slices.ContainsFunc(c.Computed, func(name string) bool { return name == "path" || name == "workspace_dir" })
	}
	return d
}

// ReadCode reads a module. A file that does not parse is left to the engine, which explains the mistake better.
func ReadCode(fsys fs.FS, dir, engine string) Code {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return Code{Unsure: true}
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isConfig(e.Name(), engine) {
			names = append(names, e.Name())
		}
	}
	// Override files come last, in the order of their names.
	slices.SortStableFunc(names, func(a, b string) int {
		if x, y := isOverride(a), isOverride(b); x != y {
			if x {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	c := Code{Files: len(names)}
	for _, name := range names {
		readFile(fsys, path.Join(dir, name), &c)
	}
	return c
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

// readFile reads one file. A later declaration replaces an earlier one.
func readFile(fsys fs.FS, name string, c *Code) {
	const limit = 4 << 20
	info, err := fs.Stat(fsys, name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		c.Unsure = true
		return
	}
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		c.Unsure = true
		return
	}
	parseCode(src, path.Base(name), c)
}

func parseCode(src []byte, name string, c *Code) {
	if strings.HasSuffix(name, ".json") {
		parseJSON(src, c)
		return
	}
	parseHCL(src, name, c)
}

func (c *Code) backend(name string) {
	c.Backend, c.Settings, c.Computed, c.Cloud, c.CloudSettings = name, map[string]string{}, nil, false, nil
}

func (c *Code) typed(variable, word string) {
	if c.Types == nil {
		c.Types = map[string]string{}
	}
	c.Types[variable] = word
}

func (c *Code) variable(name string, hasDefault bool) {
	if c.Variables == nil {
		c.Variables = map[string]bool{}
	}
	c.Variables[name] = c.Variables[name] || hasDefault
}

// reads notes the variable that tokens name after "var".
func (c *Code) reads(tokens hclsyntax.Tokens) {
	if len(tokens) < 2 || tokens[0].Type != hclsyntax.TokenDot || tokens[1].Type != hclsyntax.TokenIdent {
		return
	}
	if c.Reads == nil {
		c.Reads = map[string]bool{}
	}
	c.Reads[string(tokens[1].Bytes)] = true
}

// blockWords begin the blocks that are counted.
var blockWords = []string{"resource", "data", "ephemeral", "module"}

func (c *Code) cloud() {
	c.Backend, c.Settings, c.Computed, c.Cloud, c.CloudSettings = "", nil, nil, true, map[string]string{}
}

// cloudWorkspaces is the block within a cloud block, or a backend remote, that says which workspaces are meant.
const cloudWorkspaces = "workspaces"

// parseHCL reads tokens, not a syntax tree: the parser of the language follows nested expressions on the stack without
// a bound, and the code of a workspace must not be able to end the runner.
func parseHCL(src []byte, name string, c *Code) {
	tokens, diags := lex(src, name)
	s := hclScan{Code: c}
	for i, t := range tokens {
		switch {
		case opens(t):
			s.depth++
		case closes(t):
			s.close()
		case t.Type == hclsyntax.TokenIdent:
			s.word(tokens, i)
		}
	}
	c.Unsure = c.Unsure || diags.HasErrors() || s.depth != 0
}

// lex returns the tokens of a file without its comments. Of those to the end of a line, the end of the line stays.
func lex(src []byte, name string) (hclsyntax.Tokens, hcl.Diagnostics) {
	tokens, diags := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	for i, t := range tokens {
		if t.Type == hclsyntax.TokenComment && bytes.HasSuffix(t.Bytes, []byte("\n")) {
			tokens[i].Type = hclsyntax.TokenNewline
		}
	}
	return slices.DeleteFunc(tokens, func(t hclsyntax.Token) bool { return t.Type == hclsyntax.TokenComment }), diags
}

// opens reports whether a token begins a nested block or expression.
func opens(t hclsyntax.Token) bool {
	switch t.Type {
	case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
		return true
	default:
		return false
	}
}

// closes reports whether a token ends a nested block or expression.
func closes(t hclsyntax.Token) bool {
	switch t.Type {
	case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
		return true
	default:
		return false
	}
}

// hclScan is the position of parseHCL in the nesting of blocks.
type hclScan struct {
	*Code
	depth     int
	top       string // the word of the block at the top that encloses the token
	label     string // its label
	inBackend bool   // the token is in a backend block of a terraform block
	inCloud   bool   // the token is in a cloud block
	inChoice  bool   // and in its block workspaces
}

func (s *hclScan) close() {
	s.depth--
	s.inBackend = s.inBackend && s.depth > 1
	s.inCloud, s.inChoice = s.inCloud && s.depth > 1, s.inChoice && s.depth > 2
	if s.depth <= 0 {
		s.top = ""
	}
}

// word reads the attribute or the block that begins with an identifier.
func (s *hclScan) word(tokens hclsyntax.Tokens, i int) {
	word, label, opens := header(tokens[i:])
	startsLine := i == 0 || tokens[i-1].Type == hclsyntax.TokenNewline || tokens[i-1].Type == hclsyntax.TokenOBrace
	s.ReadsWorkspace = s.ReadsWorkspace || word == "terraform" && namesWorkspace(tokens[i+1:])
	if word == "var" && (i == 0 || tokens[i-1].Type != hclsyntax.TokenDot) {
		s.reads(tokens[i+1:])
	}
	if s.depth == 0 && startsLine && slices.Contains(blockWords, word) {
		s.Blocks++
	}
	switch {
	case s.depth == 2 && s.inBackend && s.setting(word, tokens[i:]):
	case (s.inCloud || s.inChoice) && s.cloudSetting(word, tokens[i:]):
	case s.depth == 1 && s.attribute(word, tokens[i:]):
	case s.top == "terraform" && (word == "var" || word == "local"):
		s.Early = true
	case opens && startsLine:
		s.block(word, label)
	}
}

// setting reads a setting of a backend block, and reports whether it is one.
func (s *hclScan) setting(word string, tokens hclsyntax.Tokens) bool {
	if value := literal(tokens); value != "" {
		s.Settings[word] = value
		return true
	}
	if len(tokens) > 1 && tokens[1].Type == hclsyntax.TokenEqual {
		s.Computed = append(s.Computed, word)
		return true
	}
	return false
}

// cloudSetting reads a setting of a cloud block, or of the block workspaces of a backend, and reports whether it is one.
func (s *hclScan) cloudSetting(word string, tokens hclsyntax.Tokens) bool {
	settings := s.CloudSettings
	if s.inBackend {
		settings = s.Settings
	}
	value := literal(tokens)
	switch {
	case value == "":
	case s.depth == 2:
		settings[word] = value
	case s.depth == 3 && s.inChoice:
		settings[cloudWorkspaces+"."+word] = value
	}
	return value != ""
}

// namesWorkspace reports whether tokens go on after "terraform" with the name of the engine's workspace.
func namesWorkspace(tokens hclsyntax.Tokens) bool {
	return len(tokens) > 1 && tokens[0].Type == hclsyntax.TokenDot && string(tokens[1].Bytes) == "workspace"
}

// attribute reads an attribute of a block at the top, and reports whether it is one of those that matter.
func (s *hclScan) attribute(word string, tokens hclsyntax.Tokens) bool {
	switch {
	case s.top == "module" && word == "source":
		if value := literal(tokens); value != "" {
			s.Modules = append(s.Modules, value)
		} else {
			s.Early = true
		}
	case s.top == "variable" && word == "ephemeral":
		s.Ephemeral = true
	case s.top == "variable" && word == "type":
		s.typed(s.label, typeWord(tokens))
	case s.top == "variable" && word == "default" && len(tokens) > 1 && tokens[1].Type == hclsyntax.TokenEqual:
		s.variable(s.label, true)
	case s.top == "terraform" && word == "required_version" && literal(tokens) != "":
		s.Required = append(s.Required, literal(tokens))
	default:
		return false
	}
	return true
}

// block reads the head of a block.
func (s *hclScan) block(word, label string) {
	switch {
	case s.depth == 0 && word == "provider" && label != "":
		s.Providers = append(s.Providers, label)
	case s.depth == 0 && (word == "terraform") == (label == ""):
		if s.top, s.label = word, label; word == "variable" {
			s.variable(label, false)
		}
	case s.depth == 1 && s.top == "terraform" && word == "encryption" && label == "":
		s.Encrypts = true
	case s.depth == 1 && s.top == "terraform" && word == "cloud" && label == "":
		s.cloud()
		s.inCloud = true
	case s.depth == 2 && (s.inCloud || s.inBackend) && word == cloudWorkspaces && label == "":
		s.inChoice = true
	case s.depth == 1 && s.top == "terraform" && word == "backend" && label != "":
		s.backend(label)
		s.inBackend = true
	}
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

// typeWord reads the first word of the type that an attribute has.
func typeWord(tokens hclsyntax.Tokens) string {
	if len(tokens) < 3 || tokens[1].Type != hclsyntax.TokenEqual {
		return ""
	}
	if tokens[2].Type == hclsyntax.TokenOQuote && len(tokens) > 3 {
		return string(tokens[3].Bytes) // as before version 0.12
	}
	return string(tokens[2].Bytes)
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

// parseJSON reads the JSON form, in which each block may also be a list of blocks.
func parseJSON(src []byte, c *Code) {
	var doc any
	if err := json.Unmarshal(src, &doc); err != nil {
		c.Unsure = true
		return
	}
	c.ReadsWorkspace = c.ReadsWorkspace || bytes.Contains(src, []byte("terraform.workspace"))
	for _, top := range blocks(doc) {
		c.jsonVariables(top["variable"])
		c.jsonTerraform(top["terraform"])
		for _, providers := range blocks(top["provider"]) {
			c.Providers = append(c.Providers, slices.Sorted(maps.Keys(providers))...)
		}
		c.jsonModules(top["module"])
		c.jsonBlocks(top)
	}
}

// jsonBlocks counts the blocks: of a type and a name, and modules, which have only a name.
func (c *Code) jsonBlocks(top map[string]any) {
	for _, word := range blockWords {
		for _, named := range blocks(top[word]) {
			if word == "module" {
				c.Blocks += len(named)
				continue
			}
			for _, one := range named {
				for _, names := range blocks(one) {
					c.Blocks += len(names)
				}
			}
		}
	}
}

func (c *Code) jsonVariables(value any) {
	for _, variables := range blocks(value) {
		for name, declared := range variables {
			c.variable(name, false)
			for _, one := range blocks(declared) {
				_, hasDefault := one["default"]
				c.variable(name, hasDefault)
				c.Ephemeral = c.Ephemeral || one["ephemeral"] != nil
				if written, ok := one["type"].(string); ok {
					first, _, _ := strings.Cut(written, "(")
					c.typed(name, first)
				}
			}
		}
	}
}

func (c *Code) jsonTerraform(value any) {
	for _, settings := range blocks(value) {
		raw, _ := json.Marshal(settings) // it was JSON before
		c.Early = c.Early || strings.Contains(string(raw), "${")
		c.Encrypts = c.Encrypts || settings["encryption"] != nil
		if required, ok := settings["required_version"].(string); ok {
			c.Required = append(c.Required, required)
		}
		if settings["cloud"] != nil {
			c.cloud()
			c.jsonCloud(settings["cloud"])
		}
		for _, backend := range blocks(settings["backend"]) {
			for name := range backend {
				c.backend(name)
				c.jsonSettings(backend[name])
			}
		}
	}
}

// jsonCloud reads the settings of a cloud block.
func (c *Code) jsonCloud(value any) {
	jsonLiterals(c.CloudSettings, "", value)
	for _, settings := range blocks(value) {
		jsonLiterals(c.CloudSettings, cloudWorkspaces+".", settings[cloudWorkspaces])
	}
}

// jsonLiterals takes over those settings of a block that are plain strings, under names that begin alike.
func jsonLiterals(to map[string]string, begins string, value any) {
	for _, settings := range blocks(value) {
		for key, value := range settings {
			if text, ok := value.(string); ok && !strings.Contains(text, "${") {
				to[begins+key] = text
			}
		}
	}
}

func (c *Code) jsonSettings(value any) {
	for _, settings := range blocks(value) {
		for key, value := range settings {
			if text, ok := value.(string); ok && !strings.Contains(text, "${") {
				c.Settings[key] = text
			} else {
				c.Computed = append(c.Computed, key)
			}
		}
		jsonLiterals(c.Settings, cloudWorkspaces+".", settings[cloudWorkspaces])
	}
}

func (c *Code) jsonModules(value any) {
	for _, modules := range blocks(value) {
		for _, name := range slices.Sorted(maps.Keys(modules)) {
			for _, call := range blocks(modules[name]) {
				if source, ok := call["source"].(string); ok {
					c.Modules = append(c.Modules, source)
					c.Early = c.Early || strings.Contains(source, "${")
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
