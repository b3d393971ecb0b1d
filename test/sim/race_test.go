//go:build race

package sim_test

// The race detector makes a seed eight times slower. Under it few are played; scripts/test plays all of them without it.
func init() { *seeds = 4 }
