package engine

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Unit is the content of a file of Terragrunt, as far as it can be read without it.
type Unit struct {
	Sourced  bool       // its terraform block names a source
	Source   *UnitPath  // of it, where that is a path
	Includes []UnitPath // of the files that it includes
	Reads    []UnitPath // of all files that it reads, with these
	Needs    []UnitPath // of the units that it depends on
	Calls    []UnitPath // of a stack: the sources of its units and stacks
	Backend  string     // type of its remote_state; empty: none, or not a plain string
	Unsure   bool       // something could not be read
}

// UnitPath is a path in a file of Terragrunt.
type UnitPath struct {
	Path     string // from the directory that the next fields mean, else from that of the file
	Above    string // the nearest one above the unit that has this file
	Repo     bool   // the top of the repository
	Optional bool   // the file may be absent
}

// Local reports whether it is a path at all, and not the address of a module.
func (p UnitPath) Local() bool {
	return p.Above != "" || p.Repo || strings.HasPrefix(p.Path, ".") || strings.HasPrefix(p.Path, "/")
}

// ReadUnit reads tokens, as parseHCL does.
func ReadUnit(src []byte, name string) Unit {
	tokens, diags := lex(src, name)
	var u Unit
	s := unitScan{Unit: &u}
	for i, t := range tokens {
		switch {
		case opens(t):
			s.depth++
		case closes(t):
			if s.depth--; s.depth <= 0 {
				s.top = ""
			}
		case t.Type == hclsyntax.TokenIdent:
			s.word(tokens[i:])
		}
	}
	u.Unsure = diags.HasErrors() || s.depth != 0
	return u
}

// unitScan is the position of ReadUnit in the nesting of blocks.
type unitScan struct {
	*Unit
	depth int
	top   string // the word of the block at the top that encloses the token
}

// word reads the call, the attribute or the block that begins with an identifier.
func (s *unitScan) word(tokens hclsyntax.Tokens) {
	name, _, opens := header(tokens)
	c := cursor{tokens[1:]}
	switch {
	case s.depth == 0 && opens:
		s.top = name
	case s.depth == 1 && c.take(hclsyntax.TokenEqual):
		s.attribute(s.top+"."+name, c)
	case name == "find_in_parent_folders":
		s.Reads = appendPath(s.Reads, tokens)
	case name == "read_terragrunt_config" && c.take(hclsyntax.TokenOParen):
		s.Reads = appendPath(s.Reads, c.tokens)
	}
}

func (s *unitScan) attribute(name string, value cursor) {
	switch name {
	case "terraform.source":
		s.Sourced = true
		choice := value
		if p, ok := value.path(); !ok {
			s.Source = choice.local()
		} else if p.Local() {
			s.Source = &p
		}
	case "include.path":
		s.Includes = appendPath(s.Includes, value.tokens)
		s.Reads = appendPath(s.Reads, value.tokens)
	case "dependency.config_path":
		s.Needs = appendPath(s.Needs, value.tokens)
	case "dependencies.paths":
		for value.take(hclsyntax.TokenOBrack) || value.take(hclsyntax.TokenComma) || value.take(hclsyntax.TokenNewline) {
			if p, ok := value.path(); ok {
				s.Needs = append(s.Needs, p)
			}
		}
	case "unit.source", "stack.source":
		if p, ok := value.path(); ok && p.Local() {
			s.Calls = append(s.Calls, p)
		}
	case "remote_state.backend":
		if p, ok := value.path(); ok {
			s.Backend = p.Path
		}
	}
}

func appendPath(list []UnitPath, tokens hclsyntax.Tokens) []UnitPath {
	c := cursor{tokens}
	if p, ok := c.path(); ok {
		list = append(list, p)
	}
	return list
}

// cursor reads tokens from their beginning.
type cursor struct{ tokens hclsyntax.Tokens }

// take goes past tokens of these types, if they come next.
func (c *cursor) take(types ...hclsyntax.TokenType) bool {
	for i, want := range types {
		if i >= len(c.tokens) || c.tokens[i].Type != want {
			return false
		}
	}
	c.tokens = c.tokens[len(types):]
	return true
}

// text goes past a token of a type, and returns its text; any other is empty.
func (c *cursor) text(of hclsyntax.TokenType) string {
	before := c.tokens
	if !c.take(of) {
		return ""
	}
	return string(before[0].Bytes)
}

// path reads an expression that is a plain string, a call of a function that finds a directory or a file, or a
// template that begins with such a call.
func (c *cursor) path() (p UnitPath, ok bool) {
	quoted := c.take(hclsyntax.TokenOQuote)
	if quoted && !c.take(hclsyntax.TokenTemplateInterp) {
		p.Path = c.text(hclsyntax.TokenQuotedLit)
		return p, p.Path != "" && c.take(hclsyntax.TokenCQuote)
	}
	ok = c.call(&p)
	if !quoted || !ok {
		return p, ok
	}
	ok = c.take(hclsyntax.TokenTemplateSeqEnd)
	p.Path += c.text(hclsyntax.TokenQuotedLit)
	return p, ok && c.take(hclsyntax.TokenCQuote)
}

// local is the first path in the rest of a line, as in a choice between the code beside the unit
// and a released version of it; nil: there is none.
func (c *cursor) local() *UnitPath {
	for ; len(c.tokens) > 0 && c.tokens[0].Type != hclsyntax.TokenNewline; c.tokens = c.tokens[1:] {
		if p, ok := (&cursor{c.tokens}).path(); ok && strings.HasPrefix(p.Path, ".") {
			return &p
		}
	}
	return nil
}

// call reads the call of a function.
func (c *cursor) call(p *UnitPath) bool {
	switch c.text(hclsyntax.TokenIdent) {
	case "get_terragrunt_dir":
		p.Path = "."
		return c.take(hclsyntax.TokenOParen, hclsyntax.TokenCParen)
	case "get_repo_root", "get_path_to_repo_root":
		p.Repo = true
		return c.take(hclsyntax.TokenOParen, hclsyntax.TokenCParen)
	case "find_in_parent_folders":
		p.Path = c.parent(p)
		return p.Optional || c.take(hclsyntax.TokenCParen)
	case "dirname":
		if !c.take(hclsyntax.TokenOParen) || c.text(hclsyntax.TokenIdent) != "find_in_parent_folders" {
			return false
		}
		if dir := strings.LastIndex(c.parent(p), "/"); dir >= 0 {
			p.Path = p.Above[:dir]
		}
		return c.take(hclsyntax.TokenCParen, hclsyntax.TokenCParen)
	}
	return false
}

// parent reads the name of a file that is looked for above the unit.
func (c *cursor) parent(p *UnitPath) string {
	p.Above = "terragrunt.hcl" // without an argument
	if c.take(hclsyntax.TokenOParen, hclsyntax.TokenOQuote) {
		p.Above = c.text(hclsyntax.TokenQuotedLit)
		c.take(hclsyntax.TokenCQuote)
	} else {
		c.take(hclsyntax.TokenOParen)
	}
	p.Optional = c.take(hclsyntax.TokenComma)
	return p.Above
}

// PulumiCode is the part of Pulumi.yaml that says where its stacks are.
type PulumiCode struct {
	Name      string
	Backend   string // address without a password or a query; empty means none
	ConfigDir string // of the files of its stacks, from its own directory
}

// ReadPulumi reads Pulumi.yaml.
func ReadPulumi(raw []byte, file string) (PulumiCode, error) {
	p, err := readProject(raw, file)
	return PulumiCode{Name: p.Name, Backend: withoutQuery(p.Backend.URL), ConfigDir: p.ConfigDir}, err
}

// CheckStack refuses the name of a stack that this project cannot have.
func (p PulumiCode) CheckStack(name string) error {
	_, err := pulumiProject{Name: p.Name, file: "Pulumi.yaml"}.shortStack(name)
	return err
}

// PulumiFiles are the names of the file of a project.
func PulumiFiles() []string { return projectFiles() }
