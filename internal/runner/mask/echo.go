package mask

import "strings"

// echoed returns a value as the echo of a POSIX shell prints it: dash and others replace the escapes
// in it, so that a backslash and digits, say, become one byte. stops at \c, as it does.
func echoed(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' || i+1 == len(value) {
			b.WriteByte(value[i])
			continue
		}
		i++
		switch c := value[i]; c {
		case 'a', 'b', 'f', 'n', 'r', 't', 'v', 'e':
			b.WriteByte("\a\b\f\n\r\t\v\x1b"[strings.IndexByte("abfnrtve", c)])
		case '\\':
			b.WriteByte('\\')
		case 'c':
			return b.String()
		case '0', '1', '2', '3', '4', '5', '6', '7':
			limit := 3
			if c == '0' {
				limit = 4 // \0 and up to three digits
			}
			n := 0
			for digits := 0; digits < limit && i < len(value) && value[i] >= '0' && value[i] <= '7'; digits++ {
				n = n*8 + int(value[i]-'0')
				i++
			}
			i--
			b.WriteByte(byte(n)) //nolint:gosec // the shell cuts it to a byte too
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String()
}
