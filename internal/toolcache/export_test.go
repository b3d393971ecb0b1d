package toolcache

// The parsers of what publishers send.
var (
	VersionsOf = versionsOf
	SumOf      = sumOf
)
