package source

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// versionTag is the form of a tag that is a version: three numbers, so that a date or a year is none.
var versionTag = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^v?[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
})

// release is a tag that is a version.
type release struct {
	tag     string
	version *version.Version
	object  plumbing.Hash // name the tag names: of an annotated one its own object
	commit  plumbing.Hash
}

// releases are the tags of a server that are versions, the highest first.
func releases(adv *packp.AdvRefs) []release {
	var out []release
	for name, hash := range adv.References {
		tag, ok := strings.CutPrefix(name, "refs/tags/")
		if !ok || !versionTag().MatchString(tag) {
			continue
		}
		v, err := version.NewSemver(tag)
		if err != nil {
			continue
		}
		commit := hash
		if peeled, ok := adv.Peeled[name]; ok {
			commit = peeled
		}
		out = append(out, release{tag, v, hash, commit})
	}
	slices.SortFunc(out, func(a, b release) int {
		if c := b.version.Compare(a.version); c != 0 {
			return c
		}
		return strings.Compare(a.tag, b.tag)
	})
	return out
}

// maxTags is how many tags a refusal names.
const maxTags = 5

// chooseVersion finds the highest tag that fits a constraint. A pre-release fits only a constraint that names one of the
// same version.
func chooseVersion(adv *packp.AdvRefs, constraint string) (want, error) {
	fits, err := version.NewConstraint(constraint)
	if err != nil {
		return want{}, workflow.Refuse(workflow.ErrInvalid, "source.git.version", "%s is not a version or a constraint, such as 1.4.2 or ~> 1.4", quote(constraint))
	}
	all := releases(adv)
	i := slices.IndexFunc(all, func(r release) bool { return fits.Check(r.version) })
	if i < 0 {
		var tags []string
		for _, r := range all[:min(len(all), maxTags)] {
			tags = append(tags, r.tag)
		}
		there := "it has no tag that is a version, such as v1.4.2"
		if len(tags) > 0 {
			there = "its highest are " + strings.Join(tags, ", ")
		}
		return want{}, workflow.Refuse(workflow.ErrNotFound, "source.git.version", "no tag of the repository fits %s: %s", quote(constraint), text.Cut(there, 500))
	}
	best := all[i]
	for _, other := range all[i+1:] {
		if other.version.Equal(best.version) && other.commit != best.commit && fits.Check(other.version) {
			return want{}, workflow.Refuse(workflow.ErrInvalid, "source.git.version", "the tags %s and %s are the same version and name different commits; delete one, or name one in ref", quote(best.tag), quote(other.tag))
		}
	}
	return want{hash: best.object, tip: true, name: "tag " + best.tag, said: ", tag " + best.tag + ", the highest that fits " + constraint}, nil
}
