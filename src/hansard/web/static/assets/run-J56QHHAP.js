import{b as r}from"./chunk-TU6VMUDJ.js";import{m18 as e}from"./core-PXXRPUXD.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
