//go:build race

package sim_test

// The race detector makes a seed eight times slower. Under it few are played; the stage plain of .ci/run plays all of them.
func init() { *seeds = 4 }
