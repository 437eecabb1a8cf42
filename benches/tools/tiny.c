/* The command that costs nothing: exits at once, with no libc around it. */
void _start(void)
{
#if defined(__aarch64__)
	__asm__ volatile("mov x0, #0; mov x8, #93; svc #0");
#else
	__asm__ volatile("xor %edi, %edi; mov $60, %eax; syscall");
#endif
}
