package cleanup

// What the tests outside look at.
var (
	OwnCgroup  = ownCgroup
	KillListed = killListed
	Living     = living
	OwnThread  = ownThread
)
