package catalog

// Changed is the detail of a change of a pool in the audit trail.
var Changed = changed
