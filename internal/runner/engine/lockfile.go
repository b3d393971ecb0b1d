package engine

import (
	"regexp"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2"
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
func readLockFile(src []byte) (found []lockedProvider) {
	tokens, _ := hclsyntax.LexConfig(src, lockFileName, hcl.InitialPos)
	tokens = slices.DeleteFunc(tokens, func(t hclsyntax.Token) bool { return t.Type == hclsyntax.TokenComment })
	depth, hashes := 0, false
	var p *lockedProvider
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
			hashes = hashes && depth > 1
			if depth <= 0 && p != nil {
				if sourceForm().MatchString(p.source) && versionForm().MatchString(p.version) {
					found = append(found, *p)
				}
				p = nil
			}
		case hclsyntax.TokenIdent:
			word, label, opens := header(tokens[i:])
			switch {
			case depth == 0 && opens && word == "provider" && label != "":
				p = &lockedProvider{source: label}
			case depth == 1 && p != nil && word == "version":
				p.version = literal(tokens[i:])
			case depth == 1 && p != nil && word == "hashes":
				hashes = true
			}
		case hclsyntax.TokenQuotedLit:
			if depth == 2 && hashes {
				p.hashes = append(p.hashes, string(t.Bytes))
			}
		default: // the rest neither nests nor says anything
		}
	}
	return found
}
