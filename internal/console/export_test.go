package console

// Functions that tests call with bytes that no page would let through.
var (
	Clean   = clean
	OwnPath = ownPath
)
