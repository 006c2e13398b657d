package seccomp

func foreignCall() {}
