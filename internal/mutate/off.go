//go:build !mutate

package mutate

// On reports whether a mistake is made: never, in this build.
func On(string) bool { return false }
