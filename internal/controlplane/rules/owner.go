package rules

import "github.com/dayfly-dev/dayfly/internal/controlplane/record"

// Owner is the owner that keeps a workspace from changing a state; nil if none does. lineage is the state's; it is
// empty if there is no state or it has no lineage. ofPlace and ofLineage are the owners of its place and of its
// lineage, nil if there is none. It is a pure function.
//
// The owner of a place with a lineage keeps it, even if another workspace has that lineage elsewhere. Two places that
// look the same, but have states of different lineages, are different places.
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
