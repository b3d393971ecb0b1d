package api

// Setting is a thing that admins keep under a name, such as a schedule. Its kind is declared in package kind.
type Setting interface {
	// Key is its name, and the version that a change of it must find; 0 means any.
	Key() (name string, version int64)
	// Normal is the setting as an organization keeps it: with defaults for omitted fields, with its lists in order, and
	// without the fields that only the control plane sets. It is pure and idempotent.
	Normal(organization string) Setting
}
