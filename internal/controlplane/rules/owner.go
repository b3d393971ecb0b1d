package rules

import "github.com/dayfly-dev/dayfly/internal/controlplane/record"

// Owner says who keeps a workspace from changing a state of a lineage, which is empty where there is no state or where it
// has none; nil: nobody does. The arguments are who has the place and who has the lineage, nil where nobody has. It is a
// pure function.
//
// Who has a place with a lineage keeps it, whoever came by that lineage elsewhere. Of two places that look the same, but
// in which there are states of different lineages, each is a place of its own.
func Owner(wsid, lineage string, ofPlace, ofLineage *record.Owner) *record.Owner {
	switch {
	case ofPlace.Has(wsid) && ofPlace.Lineage == lineage:
		return nil
	case ofPlace != nil && !ofPlace.Has(wsid) && (lineage == "" || ofPlace.Lineage == "" || ofPlace.Lineage == lineage):
		return ofPlace
	case ofLineage != nil && !ofLineage.Has(wsid):
		return ofLineage
	}
	return nil
}
