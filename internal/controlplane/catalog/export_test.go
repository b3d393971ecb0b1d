package catalog

// Changed is what the audit trail says of a change of a pool.
var Changed = changed
