//go:build race

package dynamodb_test

const raceEnabled = true
