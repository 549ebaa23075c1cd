// SPDX-License-Identifier: Apache-2.0
// A JVM as host: calls the library from several threads, and collects garbage in between.
public final class Host {
    private static native boolean sumIsRight();

    public static void main(String[] arguments) throws InterruptedException {
        System.load(arguments[0]);
        boolean[] right = new boolean[4];
        Thread[] threads = new Thread[right.length];
        for (int i = 0; i < threads.length; i++) {
            final int place = i;
            threads[i] = new Thread(() -> right[place] = sumIsRight() && sumIsRight());
            threads[i].start();
        }
        System.gc();
        boolean all = sumIsRight();
        for (int i = 0; i < threads.length; i++) {
            threads[i].join();
            all &= right[i];
        }
        System.out.println(all ? "right" : "wrong");
    }
}
