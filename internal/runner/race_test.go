//go:build race

package runner_test

const raceEnabled = true // the race detector takes several times the memory
