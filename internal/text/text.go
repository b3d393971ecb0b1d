// Package text puts numbers and their nouns into sentences.
package text

import "fmt"

// Count says how many of something there are: 1 line, 2 lines.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Are is Count with its verb: 1 line is, 2 lines are.
func Are(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}
