package engine

import (
	"regexp"
	"sync"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// lockedProvider is a provider that a dependency lock file selects.
type lockedProvider struct {
	source  string // HOST/NAMESPACE/TYPE
	version string
	hashes  []string // of every kind
}

// The forms of strings that become part of a path.
var (
	sourceForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-z][0-9a-z.-]*(:[0-9]{1,5})?/[0-9A-Za-z_-]+/[0-9A-Za-z_-]+$`)
	})
	versionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9][0-9A-Za-z.+-]*$`) })
)

// readLockFile reads the providers of a dependency lock file, by its tokens as parseHCL does. Entries of an unknown
// form are left out: for those the engine does without the cache.
func readLockFile(src []byte) []lockedProvider {
	tokens, _ := lex(src, lockFileName)
	var s lockScan
	for i, t := range tokens {
		switch {
		case opens(t):
			s.depth++
		case closes(t):
			s.close()
		case t.Type == hclsyntax.TokenIdent:
			s.word(tokens[i:])
		case t.Type == hclsyntax.TokenQuotedLit && s.depth == 2 && s.hashes:
			s.p.hashes = append(s.p.hashes, string(t.Bytes))
		}
	}
	return s.found
}

// lockScan is the position of readLockFile in the nesting of blocks.
type lockScan struct {
	found  []lockedProvider
	p      *lockedProvider // of the block that encloses the token
	depth  int
	hashes bool // the token is in the attribute hashes
}

func (s *lockScan) close() {
	s.depth--
	s.hashes = s.hashes && s.depth > 1
	if s.depth > 0 || s.p == nil {
		return
	}
	if sourceForm().MatchString(s.p.source) && versionForm().MatchString(s.p.version) {
		s.found = append(s.found, *s.p)
	}
	s.p = nil
}

func (s *lockScan) word(tokens hclsyntax.Tokens) {
	word, label, opens := header(tokens)
	switch {
	case s.depth == 0 && opens && word == "provider" && label != "":
		s.p = &lockedProvider{source: label}
	case s.depth == 1 && s.p != nil && word == "version":
		s.p.version = literal(tokens)
	case s.depth == 1 && s.p != nil && word == "hashes":
		s.hashes = true
	}
}
