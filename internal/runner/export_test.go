package runner

// What the tests outside look at.
var (
	Cgroups        = cgroups
	KeepThreads    = keepThreads
	NextBeat       = nextBeat
	Counted        = counted
	AskMirror      = askMirror
	EvaluateGroups = evaluateGroups
	Bounded        = bounded
	Stopped        = stopped

	KilledForMemory = killedForMemory
)
